"""The targets of a detached run, as the newest command wants them: how many segments, and which goal.

A job that has been at work for hours was told what was wanted then; the run may have been extended meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from unbroken.runs.layout import NOTES, RunFolder
from unbroken.runs.outcome import Outcome
from unbroken.runs.record import read_record
from unbroken.runs.run import Run, is_reached
from unbroken.system import fs, jsontext


@dataclass(frozen=True)
class Wanted:
    """How far a run is to go; `goal` and `metric_goals` as in `Run`."""

    segments: int
    goal: float | None
    metric_goals: dict[str, float]


def keep(run: Run) -> None:
    """Notes what is wanted of a run now."""
    path = _path(run.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"segments": run.segments, "goal": run.goal, "metric_goals": dict(run.metric_goals)}
    fs.write_atomic(path, json.dumps(data) + "\n")


def wanted(run: str) -> Wanted | None:
    """What was noted last; None if nothing was, or somebody has spoilt it."""
    try:
        data = jsontext.parse(_path(run).read_text())
        return Wanted(int(data["segments"]), data["goal"], dict(data["metric_goals"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_over(run: str, segments: int = 0) -> bool:
    """True if the run has used its segments, or its newest record says that the goal is reached that is wanted now.

    `segments` is how many it may have where nothing was noted.
    """
    places, now = RunFolder(run), wanted(run)
    segments = now.segments if now else segments
    missing = next((number for number in range(1, segments + 1) if not places.record(number).exists()), segments + 1)
    record = read_record(places.record(missing - 1)) if missing > 1 else None
    if missing > segments:
        return True
    if record is None or record.outcome is not Outcome.FINISHED:
        return False
    return now is None or is_reached(record.progress, now.goal, now.metric_goals)


def _path(run: str) -> Path:
    return NOTES / f"{run}.wanted.json"
