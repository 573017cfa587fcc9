"""How long start, save and stop took, and what follows for the configuration."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.history import Attempt
from unbroken.runs.run import Run
from unbroken.segment.deadline import SAFETY

# Saves take no more than this share of the time, and start and stop no more than that one of a segment.
SAVE_SHARE = 0.01
CUT_SHARE = 0.05


@dataclass(frozen=True)
class Measures:
    """Seconds, None where nothing says it; `before_seconds` pass between the start of a segment and its program's."""

    start_seconds: float | None = None
    save_seconds: float | None = None
    stop_seconds: float | None = None
    before_seconds: float = 0.5

    def with_pieces(self, attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint]) -> Measures:
        """The longest of all pieces."""
        starts = [seconds for each in attempts if (seconds := _start(each)) is not None]
        stops = [each.stop_seconds for each in attempts if each.stop_seconds is not None]
        return replace(
            self,
            start_seconds=max([*starts, self.start_seconds or 0.0]) or None,
            save_seconds=max([*_saves(attempts, checkpoints), self.save_seconds or 0.0]) or None,
            stop_seconds=max(stops, default=self.stop_seconds),
        )

    def rounded(self) -> tuple[float | None, float | None, float | None]:
        """Start, save and stop, to the millisecond."""
        known = (self.start_seconds, self.save_seconds, self.stop_seconds)
        start, save, stop = (None if value is None else round(value, 3) for value in known)
        return start, save, stop

    def lines(self, run: Run) -> Iterator[str]:
        """What they come to for the configuration."""
        known = {"start": self.start_seconds, "save": self.save_seconds, "stop": self.stop_seconds}
        told = [f"{name} {seconds:.1f} s" for name, seconds in known.items() if seconds is not None]
        if not told:
            return
        yield f"took at most: {', '.join(told)}"
        if self.stop_seconds is not None:
            yield f"first_margin_seconds: {math.ceil(SAFETY * self.stop_seconds + 1)}"
        if self.save_seconds is not None:
            least = self.save_seconds / SAVE_SHARE / 60
            note = "" if run.save_minutes >= least else f" (now {run.save_minutes:g})"
            yield f"save_minutes: {_minutes(least)} or more{note}, so that saves take {SAVE_SHARE:.0%} of the time"
        if self.start_seconds is not None:
            cut = self.before_seconds + self.start_seconds + (self.stop_seconds or 0.0)
            least = cut / CUT_SHARE / 60
            note = "" if run.segment_minutes >= least else f" (now {run.segment_minutes:g})"
            yield f"segment_minutes: {_minutes(least)} or more{note}, so that start and stop take {CUT_SHARE:.0%} of it"


def measures_of(attempt: Attempt, checkpoints: Sequence[Checkpoint]) -> Measures:
    """Those of a whole run."""
    times = attempt.times
    before = (times.program_started or 0.0) - (times.job_started or times.program_started or 0.0)
    saves = list(_saves([attempt], checkpoints))
    return Measures(_start(attempt), max(saves, default=None), attempt.stop_seconds, max(before, 0.1))


def _start(attempt: Attempt) -> float | None:
    begun, first = attempt.times.program_started, attempt.times.first_step
    return first - begun if begun is not None and first is not None else None


def _saves(attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint]) -> Iterator[float]:
    yield from (each.save_seconds for each in attempts if each.saves)
    yield from (each.passport.save_seconds for each in checkpoints if each.passport.save_seconds is not None)


def _minutes(value: float) -> str:
    return f"{math.ceil(value)}" if value > 1 else f"{math.ceil(value * 100) / 100:g}"
