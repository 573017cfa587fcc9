"""The examples of the command engine: real programs in pieces and under kills leave the bytes of one run."""

import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from engines.conformance import ROOT
from support.command_jobs import command_job, command_segment, start_command_segment
from support.needs import require
from support.toyrun import history, until

from unbroken.engines.testing.kills import programs_of
from unbroken.errors import UnbrokenError
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndKind

pytestmark = pytest.mark.process


@dataclass(frozen=True)
class Example:
    """An example of examples/, small enough for a test, and what makes one whole run of it without unbroken."""

    folder: str
    run: str
    files: tuple[str, ...]
    goal: int
    plain: tuple[str, ...]
    results: tuple[str, ...]
    needs: str = ""
    compiled: tuple[str, ...] = ()
    segment_minutes: float = 0.1

    def settings(self, base: Path, **changes: object) -> dict[str, object]:
        """Its settings as they stand in its config, its files at hand in `base`."""
        require(*filter(None, [self.needs]))
        base.mkdir(exist_ok=True)
        for name in self.files:
            shutil.copyfile(ROOT / "examples" / self.folder / name, base / name)
        if self.compiled:
            subprocess.run(self.compiled, cwd=base, check=True)
        runs = yaml.safe_load((ROOT / "examples" / self.folder / "config" / "config.yaml").read_text())["runs"]
        return {**runs[self.run]["settings"], "goal": self.goal, **changes}

    def with_goal_behind(self, done: float) -> "Example":
        """The same with another goal: one or two quarters of its own behind what is done."""
        quarter = self.goal // 4
        return replace(self, goal=(int(done) // quarter + 2) * quarter)

    def whole(self, folder: Path) -> dict[str, bytes]:
        """The results of one run without unbroken around it."""
        self.settings(folder)
        words = [word.format(goal=self.goal) for word in self.plain]
        environment = {**os.environ, "UNBROKEN_GOAL": str(self.goal)}
        subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=environment)
        return {name: (folder / name).read_bytes() for name in self.result_names}

    @property
    def result_names(self) -> list[str]:
        return [name.format(goal=self.goal) for name in self.results]


EXAMPLES = {
    "lammps": Example(
        "lammps",
        "melt",
        ("start.in", "resume.in", "run.in"),
        2000,
        ("lmp", "-in", "start.in", "-var", "total", "{goal}", "-var", "limit", "1:00:00", "-log", "none"),
        ("melt.{goal}.rst", "thermo.dat", "melt.lammpstrj"),
        "lammps",
    ),
    "c": Example(
        "c", "ising", ("ising.c",), 6000, ("./ising", "{goal}"), ("ising.chk", "energy.tsv"), "gcc",
        ("cc", "-O2", "-o", "ising", "ising.c"),
    ),
    "c, the contract": Example(
        "c", "pi", ("pi.c", "unbroken.h"), 1200, ("./pi",), ("pi.csv",), "gcc", ("cc", "-O2", "-o", "pi", "pi.c"),
    ),
    "fortran": Example(
        "fortran", "plate", ("heat.f90", "unbroken.f90"), 80_000, ("./heat",), ("heat.csv",), "gfortran",
        ("gfortran", "-O2", "-o", "heat", "unbroken.f90", "heat.f90"),
    ),
    "r": Example(
        "r", "banana", ("walk.R", "unbroken.R"), 6000, ("Rscript", "--vanilla", "walk.R"), ("draws.csv",),
        "r-base-core",
    ),
    "matlab": Example(
        "matlab", "banana", ("simulate.m", "unbroken.m"), 2000, ("octave-cli", "--norc", "--eval", "simulate"),
        ("draws.csv",), "octave",
    ),
    "shell": Example(
        "command", "factors", ("factors.sh",), 200, ("sh", "factors.sh", "{goal}", "stop"), ("done.txt", "factors.txt"),
        segment_minutes=0.05,
    ),
}  # fmt: skip


def results_of(base: Path, example: Example) -> dict[str, bytes]:
    final = base / "results" / "demo" / "final"
    return {name: (final / name).read_bytes() for name in example.result_names if (final / name).exists()}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_in_pieces_leaves_the_bytes_of_one_run(tmp_path, name):
    example, base = EXAMPLES[name], tmp_path / "pieces"
    settings = example.settings(base, goal=10**6)
    keys = {"segment_minutes": example.segment_minutes, "save_minutes": 0.005}

    # Far more than a quick machine does in two segments; a slow one may need more of them for a first step.
    records = [command_segment(base, settings, 1, **keys)]
    while len(records) < 2 or records[-1].progress.done == 0:
        records.append(command_segment(base, settings, len(records) + 1, **keys))
    example = example.with_goal_behind(records[-1].progress.done)
    keys["segment_minutes"] = 30
    last = command_segment(base, {**settings, "goal": example.goal}, len(records) + 1, **keys)

    assert {record.kind for record in records} == {EndKind.PAUSED}
    assert last.kind is EndKind.FINISHED
    assert results_of(base, example) == example.whole(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_with_six_kills_leaves_the_bytes_of_one_run(tmp_path, name):
    example, base, dice = EXAMPLES[name], tmp_path / "killed", random.Random(name)
    settings = example.settings(base)
    job = command_job(base, settings)

    # By its progress and not by the clock: a quick machine must not come to the end before the last kill.
    for share in sorted(dice.uniform(0, 0.5) for _ in range(6)):
        kill_at_work(job, settings, example.results[-1], share * example.goal, dice)
    command_segment(base, settings, segment_minutes=30)

    ended = [attempt for attempt in history(job) if attempt.kind in (EndKind.DIED, EndKind.FAILED)]
    assert len(ended) >= 3
    assert any(attempt.progress_to > attempt.progress_from for attempt in ended)
    assert results_of(base, example) == example.whole(tmp_path / "whole")


def kill_at_work(job, settings, output, done, dice):
    """Kills a segment, or its program, after its first records, a moment after it has saved so much."""
    work, store = job.places.work, Store(job.places.checkpoints)
    before = set(work.glob("*"))
    process = start_command_segment(job.base, settings, save_minutes=0.005, segment_minutes=30)

    def is_at_work():
        has_saved = any(checkpoint.passport.progress.done >= done for checkpoint in store.readable())
        return has_saved and any(
            has_records(attempt_folder / "program" / output) for attempt_folder in set(work.glob("*")) - before
        )

    until(lambda: process.process.poll() is not None or is_at_work())
    time.sleep(dice.uniform(0, 0.3))
    program = programs_of(process.pid)[:1]  # the oldest; others only answer
    with suppress(ProcessLookupError):  # it came to its end on a busy machine
        os.kill(dice.choice([process.pid, *program]), signal.SIGKILL)
    process.end()


def has_records(path):
    return path.exists() and path.stat().st_size > 500


@pytest.mark.needs("gcc")
def test_the_c_program_is_told_by_a_signal_and_asked_how_far_it_is(tmp_path):
    settings = EXAMPLES["c"].settings(tmp_path, goal=10**6)

    record = command_segment(tmp_path, settings, segment_minutes=0.1, save_minutes=0.005)

    (attempt,) = history(command_job(tmp_path, settings))
    assert (record.kind, record.progress.unit, attempt.exit_code) == (EndKind.PAUSED, "sweeps", 85)
    assert record.progress.done > 0


@pytest.mark.needs("lammps")
def test_a_lammps_that_cannot_read_its_restart_file_is_a_failure_and_not_a_beginning(tmp_path):
    settings = EXAMPLES["lammps"].settings(tmp_path, goal=10**6)
    settings["resume"] = [word if word != "{file}" else "missing.rst" for word in settings["resume"]]
    keys = {"segment_minutes": 0.15, "save_minutes": 0.005}
    assert command_segment(tmp_path, settings, **keys).kind is EndKind.PAUSED

    with pytest.raises(UnbrokenError, match=r"exit code 1: ERROR.* missing\.rst.*; nothing new was saved; read "):
        command_segment(tmp_path, settings, segment=2, **keys)
