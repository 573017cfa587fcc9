"""Progress: how far a run is, as the program itself says it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from longhaul.errors import CheckpointError

Metric = int | float | str | bool | None


@dataclass(frozen=True)
class Progress:
    """How much of the goal is done, both in `unit`; metrics are the program's own latest figures."""

    done: float
    goal: float | None = None
    unit: str = "steps"
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    @property
    def is_finished(self) -> bool:
        return self.goal is not None and self.done >= self.goal

    def to_json(self) -> dict[str, object]:
        return {"done": self.done, "goal": self.goal, "unit": self.unit, "metrics": dict(self.metrics)}


@dataclass(frozen=True)
class FileDigest:
    """Size and digest of one file of a checkpoint."""

    size_bytes: int
    digest: str


@dataclass(frozen=True)
class Handover:
    """What a program says of one checkpoint that it hands over (`progress.json` in a `.ready` folder)."""

    progress: Progress
    is_best: bool = False
    is_finished: bool = False  # the program calls itself done, be it before the goal (early stopping)
    versions: Mapping[str, str] = field(default_factory=dict)
    save_seconds: float | None = None
    algorithm: str = ""
    digests: Mapping[str, FileDigest] = field(default_factory=dict)
    is_milestone: bool = False  # stays for good


def parse_progress(data: object, source: str) -> Progress:
    """The progress in a decoded JSON value; CheckpointError names `source` and what is wrong with it."""
    if not isinstance(data, dict):
        raise CheckpointError(f"{source}: found {type(data).__name__}, allowed: an object with a number 'done'")
    done, goal = data.get("done"), data.get("goal")
    if not _is_number(done):
        raise CheckpointError(f"{source}: 'done' is {done!r}, allowed: a number")
    if goal is not None and not _is_number(goal):
        raise CheckpointError(f"{source}: 'goal' is {goal!r}, allowed: a number or null")
    metrics = data.get("metrics") or {}
    if not isinstance(metrics, dict):
        raise CheckpointError(f"{source}: 'metrics' is {metrics!r}, allowed: an object")
    unit = str(data.get("unit", "steps"))
    return Progress(done, goal, unit, {key: _storable(value) for key, value in metrics.items()})


def parse_handover(data: object, source: str) -> Handover:
    """A hand-over in a decoded JSON value; CheckpointError names `source` and what is wrong with it."""
    progress = parse_progress(data, source)
    if not isinstance(data, dict):
        raise CheckpointError(f"{source}: not an object")
    digests = data.get("digests") or {}
    try:
        files = {
            name: FileDigest(int(entry["size_bytes"]), str(entry["digest"]))
            for name, entry in digests.get("files", {}).items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{source}: 'digests' is malformed ({error!r})") from error
    save_seconds = data.get("save_seconds")
    return Handover(
        progress,
        data.get("is_best") is True,
        data.get("is_finished") is True,
        {str(key): str(value) for key, value in (data.get("versions") or {}).items()},
        float(save_seconds) if isinstance(save_seconds, (int, float)) else None,
        str(digests.get("algorithm", "")),
        files,
        data.get("is_milestone") is True,
    )


def read_progress(path: Path) -> Progress | None:
    """The progress that a live program last wrote to `path`; None while there is none, or a torn one."""
    try:
        return parse_progress(json.loads(path.read_text()), str(path))
    except (OSError, ValueError, CheckpointError):
        return None


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _storable(value: object) -> Metric:
    """JSON has no NaN: a loss that became one is told as text, and is no mistake of the program."""
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return json.dumps(value)
