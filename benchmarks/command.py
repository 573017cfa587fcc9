"""What cutting a program with restart files of its own costs: LAMMPS and a C program, against one run of each.

The examples of examples/lammps and examples/c; the number of steps is such that one run takes as long as ten segments.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml
from support.cuts import HEADER, Came, by_unbroken, contents, row
from support.measure import ROOT, cost_of, in_turns, machine, options, publish, table


@dataclass(frozen=True)
class Subject:
    """An example that is measured: its files, how it runs without unbroken, and what must be the same bytes."""

    name: str
    place: str  # on the page
    folder: str
    run: str
    files: tuple[str, ...]
    plain: Callable[[int], list[str]]
    results: Callable[[int], tuple[str, ...]]
    version: str

    def settings(self, goal: int) -> dict[str, object]:
        config = yaml.safe_load((ROOT / "examples" / self.folder / "config" / "config.yaml").read_text())
        return {**config["runs"][self.run]["settings"], "goal": goal}

    def fill(self, folder: Path) -> Path:
        for name in self.files:
            shutil.copyfile(ROOT / "examples" / self.folder / name, folder / name)
        if self.folder == "c":
            subprocess.run(["cc", "-O2", "-o", "ising", "ising.c"], cwd=folder, check=True)
        return folder


SUBJECTS = (
    Subject(
        "LAMMPS, 4,000 atoms",
        "command",
        "lammps",
        "melt",
        ("start.in", "resume.in", "run.in"),
        lambda goal: ["lmp", "-in", "start.in", "-var", "total", str(goal), "-var", "limit", "9:00:00"],
        lambda goal: (f"melt.{goal}.rst", "thermo.dat", "melt.lammpstrj"),
        "LAMMPS 29 Sep 2021",
    ),
    Subject(
        "C, 65,536 spins",
        "command-c",
        "c",
        "ising",
        ("ising.c",),
        lambda goal: ["./ising", str(goal)],
        lambda goal: ("ising.chk", "energy.tsv"),
        "gcc -O2",
    ),
)


def unbroken(base: Path, subject: Subject, goal: int, segments: int, segment_seconds: float) -> Came:
    folder = subject.fill(Path(tempfile.mkdtemp(dir=base)))
    run = {"engine": "command", "segments": segments, "segment_minutes": segment_seconds / 60, "save_minutes": 1}
    return by_unbroken(folder, {**run, "settings": subject.settings(goal)}, subject.results(goal))


def alone(base: Path, subject: Subject, goal: int) -> Came:
    folder = subject.fill(Path(tempfile.mkdtemp(dir=base)))
    cost = cost_of(subject.plain(goal), folder)
    return Came(cost.wall_seconds, 1, [], contents(folder, subject.results(goal)))


def steps_a_second(base: Path, subject: Subject, steps: int) -> float:
    """By a short run of the program alone."""
    folder = subject.fill(Path(tempfile.mkdtemp(dir=base)))
    began = time.monotonic()
    subprocess.run(subject.plain(steps), cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return steps / (time.monotonic() - began)


def measure(base: Path, subject: Subject, segments: int, segment_seconds: float, rounds: int) -> str:
    pace = steps_a_second(base, subject, 1000)
    # A little less than fits, so that the last segment is not a crumb.
    goal = int(pace * segments * (segment_seconds - 1) * 0.9)
    variants = {
        "the program alone": partial(alone, base, subject, goal),
        "one segment of unbroken": partial(unbroken, base, subject, goal, 1, 36000.0),
        "segments of unbroken": partial(unbroken, base, subject, goal, 2 * segments, segment_seconds),
    }
    found = in_turns(variants, rounds)
    whole = found["the program alone"]
    rows = [row(name, came, whole) for name, came in found.items()]
    head = f"**{subject.name}**, segments of {segment_seconds:g} s, {pace:.0f} steps a second, rounds: {rounds}"
    return f"{head}\n\n{table(HEADER, rows)}"


if __name__ == "__main__":
    chosen = options(
        __doc__,
        segments=(int, 10, "how many segments"),
        seconds=(float, 8.0, "length of a segment"),
        rounds=(int, 2, "how often"),
        only=(str, "", f"one of them alone: {' or '.join(each.folder for each in SUBJECTS)}"),
    )
    for subject in SUBJECTS:
        if chosen.only in ("", subject.folder):
            where = f"{machine('snakemake')} {subject.version}."
            with tempfile.TemporaryDirectory(dir=os.environ.get("UNBROKEN_BENCH_FOLDER")) as name:
                page = measure(Path(name), subject, chosen.segments, chosen.seconds, chosen.rounds)
            publish(subject.place, f"{where}\n\n{page}", chosen.write)
