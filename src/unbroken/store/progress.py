"""Progress: how far a run is, as the program itself says it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from unbroken.errors import CheckpointError
from unbroken.store.layout import parse_json

Metric = int | float | str | bool | None
# Of what was found instead, so much is shown.
LONGEST_FOUND = 60


@dataclass(frozen=True)
class Progress:
    """Say how much of the goal is done, both in `unit`; metrics are the program's own latest figures."""

    done: float
    goal: float | None = None
    unit: str = "steps"
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    @property
    def is_finished(self) -> bool:
        return self.goal is not None and self.done >= self.goal

    def to_json(self) -> dict[str, object]:
        # JSON knows neither NaN nor infinity, and a loss can become both.
        metrics = {name: None if _is_endless(value) else value for name, value in self.metrics.items()}
        return {"done": self.done, "goal": self.goal, "unit": self.unit, "metrics": metrics}


def _is_endless(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def amount(done: float) -> str:
    """Return a number of steps or epochs for people: `300`, `1.347`, `0.0042`; never rounded up to the goal."""
    if done == int(done):
        return f"{done:.10g}"
    digits = max(3, 1 - math.floor(math.log10(abs(done))))
    return f"{math.floor(done * 10**digits) / 10**digits:.10g}"


def how_far(done: float, goal: float | None, unit: str, of: str = " of ") -> str:
    """Return `1200 of 5000 steps`."""
    return f"{amount(done)}{'' if goal is None else f'{of}{goal:.10g}'} {unit}".rstrip()


def overshoot(progress: Progress, *, has_resumed: bool) -> str:
    """Return one line about a run that ended beyond its goal, with the likely cause; empty if it did not."""
    if progress.goal is None or progress.done <= progress.goal:
        return ""
    done, goal, beyond = amount(progress.done), amount(progress.goal), amount(progress.done - progress.goal)
    said = f"{done} of {goal} {progress.unit}: {beyond} beyond the goal"
    if not has_resumed:
        return f"{said}; the program stops later than its goal says"
    return f"{said}; the program probably counts from its restart: give it {{remaining}} instead of {{goal}}"


@dataclass(frozen=True)
class FileDigest:
    """Hold size and digest of one file of a checkpoint."""

    size_bytes: int
    digest: str


@dataclass(frozen=True)
class Handover:
    """Hold what a program says of one checkpoint that it hands over (`progress.json` in a `.ready` folder)."""

    progress: Progress
    is_best: bool = False
    is_finished: bool = False  # the program calls itself done, be it before the goal (early stopping)
    versions: Mapping[str, str] = field(default_factory=dict)
    save_seconds: float | None = None
    algorithm: str = ""
    digests: Mapping[str, FileDigest] = field(default_factory=dict)
    is_milestone: bool = False  # stays for good
    stall_seconds: float | None = None  # where it saves in the background: how long it stood still for that

    def to_json(self) -> dict[str, object]:
        files = {name: vars(each) for name, each in self.digests.items()}
        own = {name: value for name, value in vars(self).items() if name not in ("progress", "algorithm")}
        digests = {"algorithm": self.algorithm, "files": files}
        return {**self.progress.to_json(), **own, "versions": dict(self.versions), "digests": digests}

    @property
    def stood_still_seconds(self) -> float:
        """Return how long the program stood still to save; 0 where it does not say."""
        return (self.save_seconds if self.stall_seconds is None else self.stall_seconds) or 0.0

    @property
    def beside_seconds(self) -> float:
        """Return how long it worked on while this was written; that work is not in it."""
        return max((self.save_seconds or 0.0) - self.stood_still_seconds, 0.0)


def read_told(path: Path) -> object:
    """Return the JSON value that a program wrote; raise OSError if it cannot be read, ValueError if it is no JSON."""
    return parse_json(path.read_bytes())


def parse_progress(data: object, source: str) -> Progress:
    """Return the progress in a decoded JSON value; CheckpointError names `source` and what is wrong with it."""
    told = _checked(data, source, _OF_PROGRESS)
    return Progress(
        told["done"],
        told.get("goal"),
        _clean(told.get("unit") or "steps"),
        {_clean(key): _storable(value) for key, value in (told.get("metrics") or {}).items()},
    )


def parse_handover(data: object, source: str) -> Handover:
    """Return the hand-over in a decoded JSON value; CheckpointError names `source` and what is wrong with it."""
    progress = parse_progress(data, source)
    told = _checked(data, source, _OF_HANDOVER)
    digests: Any = told.get("digests") or {}
    try:
        files = {
            name: FileDigest(int(entry["size_bytes"]), str(entry["digest"]))
            for name, entry in digests.get("files", {}).items()
        }
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"{source}: 'digests' is malformed ({error!r})") from error
    return Handover(
        progress,
        versions={_clean(key): _clean(str(value)) for key, value in (told.get("versions") or {}).items()},
        save_seconds=told.get("save_seconds"),
        algorithm=_clean(str(digests.get("algorithm", ""))),
        digests=files,
        stall_seconds=told.get("stall_seconds"),
        **{name: bool(told.get(name)) for name in ("is_best", "is_finished", "is_milestone")},
    )


def read_progress(path: Path) -> Progress | None:
    """Return the progress that a live program last wrote to `path`; None while there is none, or a torn one."""
    try:
        return parse_progress(read_told(path), str(path))
    except (OSError, ValueError, CheckpointError):
        return None


def write_progress(path: Path, progress: Progress) -> None:
    """Replace the file that `read_progress` reads; it is for watching, so nothing is flushed to the disk."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(json.dumps(progress.to_json()))
    draft.replace(path)


def _checked(data: object, source: str, kinds: Mapping[str, _Kind]) -> dict[str, Any]:
    """Return the object that a program wrote; raise CheckpointError if one of these keys is not of its kind."""
    if not isinstance(data, dict):
        raise CheckpointError(f"{source}: found {type(data).__name__}, allowed: an object with a number 'done'")
    for key, (allowed, is_allowed) in kinds.items():
        value = data.get(key)
        if not is_allowed(value) and (value is not None or key == "done"):
            found = _clean(repr(value))
            found = found if len(found) <= LONGEST_FOUND else f"{found[:LONGEST_FOUND]}..."
            raise CheckpointError(f"{source}: '{key}' is {found}, allowed: {allowed}")
    return data


def is_number(value: object) -> TypeGuard[float]:
    """Return True for a finite number; no flag is one."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer of 400 digits
        return False


def _storable(value: object) -> Metric:
    """Return what JSON can hold: a loss that became NaN is no mistake of the program, and is kept as text."""
    if value is None or isinstance(value, bool) or is_number(value):
        return value
    return _clean(value if isinstance(value, str) else json.dumps(value))


def _clean(text: str) -> str:
    """Replace half of a surrogate pair, which JSON can name and nothing can print."""
    return text.encode(errors="replace").decode()


# What a key may be, and how that is seen; null is as good as no key, but for `done`.
_Kind = tuple[str, Callable[[object], bool]]
_NUMBER: _Kind = "a number or null", is_number
_FLAG: _Kind = "true or false", lambda value: isinstance(value, bool)
_OBJECT: _Kind = "an object", lambda value: isinstance(value, dict)
_OF_PROGRESS: dict[str, _Kind] = {
    "done": ("a number", is_number),
    "metrics": _OBJECT,
    "goal": _NUMBER,
    "unit": ("text", lambda value: isinstance(value, str)),
}
_OF_HANDOVER: dict[str, _Kind] = {
    "versions": _OBJECT,
    "save_seconds": _NUMBER,
    "stall_seconds": _NUMBER,
    **dict.fromkeys(("is_best", "is_finished", "is_milestone"), _FLAG),
}
