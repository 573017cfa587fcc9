"""One run of each engine as a real chain under snakemake, and where its seconds went."""

import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp

import yaml
from support.marks import read_marks
from support.measure import ROOT, SNAKEMAKE, Cost, cost_of

HERE = Path(__file__).parent
COMMAND = [*SNAKEMAKE, "--snakefile", str(ROOT / "Snakefile"), "--cores", "2"]
ENOUGH_MINUTES = 60.0


@dataclass(frozen=True)
class Chain:
    """What came of one chain: its cost, how many segments worked, and the seconds of each part of each segment."""

    cost: Cost
    segments: int
    first: dict[str, float]  # from typing the command to the first step
    between: list[dict[str, float]]  # from the last step of a segment to the first of the next
    last: dict[str, float]  # from the last step of all to the prompt
    working_seconds: float
    unused_seconds: list[float]


def toy(base: Path, steps: int, step_seconds: float, segments: int, segment_seconds: float | None) -> Chain:
    """Counts; a segment ends when its time is up."""
    return _run(
        base,
        engine="toy",
        segments=segments,
        segment_minutes=segment_seconds / 60 if segment_seconds else ENOUGH_MINUTES,
        enter=[sys.executable, str(HERE / "marked_toy.py")],
        settings={"goal": steps, "step_seconds": step_seconds},
    )


def torch(base: Path, steps: int, segments: int) -> Chain:
    """Trains; a segment ends after its share of the steps."""
    return _run(
        base,
        engine="torch",
        segments=segments,
        segment_minutes=ENOUGH_MINUTES,
        settings={
            "script": str(HERE / "marked_training.py"),
            "goal": steps,
            "goal_unit": "steps",
            "args": ["--segment-steps", 0 if segments == 1 else -(-steps // segments)],
        },
    )


def _run(base: Path, **run: object) -> Chain:
    folder = Path(mkdtemp(dir=base))
    (folder / "config").mkdir()
    (folder / "config" / "config.yaml").write_text(yaml.safe_dump({"runs": {"bench": run}}))
    _settle()
    typed = time.time()
    cost = cost_of(COMMAND, folder)
    return _chain(folder, cost, typed)


def _settle() -> None:
    """What was written before must not be flushed during the measurement."""
    os.sync()


def _chain(folder: Path, cost: Cost, typed: float) -> Chain:
    marks = read_marks(folder)
    for mark in marks:
        mark["record"] = (folder / "results" / "bench" / "segments" / f"{mark['segment']:03d}.json").stat().st_mtime
    history = (folder / "results" / "bench" / "history.jsonl").read_text().splitlines()
    last = marks[-1]
    return Chain(
        cost=cost,
        segments=len(marks),
        first={"snakemake: start and plan": marks[0]["script_start"] - typed, **_start(marks[0])},
        between=[_between(before, after) for before, after in pairwise(marks)],
        last={**_end(last), "snakemake: end": typed + cost.wall_seconds - last["record"]},
        working_seconds=sum(mark["last_step"] - mark["first_step"] for mark in marks),
        unused_seconds=[json.loads(line)["unused_seconds"] for line in history[:-1]],
    )


def _between(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    driver = {"snakemake: next job": after["script_start"] - before["record"]}
    return {**_end(before), **driver, **_start(after)}


def _start(mark: dict[str, float]) -> dict[str, float]:
    return {
        "segment: imports, lease, select, verify": mark["program_start"] - mark["script_start"],
        "program: start and imports": mark["imported"] - mark["program_start"],
        "program: resume, to its first step": mark["first_step"] - mark["imported"],
    }


def _end(mark: dict[str, float]) -> dict[str, float]:
    return {
        "program: notices that it must stop": mark["save_start"] - mark["last_step"],
        "program: save and leave": mark["program_end"] - mark["save_start"],
        "segment: exit, publish, record": mark["record"] - mark["program_end"],
    }


def by_part(parts: Iterable[dict[str, float]]) -> dict[str, list[float]]:
    """The seconds of each part in all of them; the sum as the last."""
    found: dict[str, list[float]] = {}
    for each in parts:
        for name, seconds in {**each, "**all**": sum(each.values())}.items():
            found.setdefault(name, []).append(seconds)
    return found
