"""Measure how long the pieces of a rehearsal start, save and stop, and whether their progress was read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from unbroken.engines.base import Engine
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.history import Attempt
from unbroken.store.progress import amount
from unbroken.store.run import RunSpec

# Start and stop take no more than this share of a segment.
CUT_SHARE = 0.05


@dataclass
class Measures:
    """Hold the longest times of all pieces in seconds, None where nothing says it."""

    start_seconds: float | None = None
    save_seconds: float | None = None
    stop_seconds: float | None = None
    _evidence: str = ""  # what read the progress, in the words of the engine
    _unit: str = ""
    _done: list[float] = field(default_factory=list)

    def note_times(self, attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint]) -> None:
        """Add the times of pieces that came to the goal."""
        times = [each.times for each in attempts]
        starts = [each.first_step - each.program_started for each in times if each.first_step and each.program_started]
        saves = [each.save_seconds for each in attempts if each.saves]
        self.start_seconds = _longest(self.start_seconds, *starts)
        self.save_seconds = _longest(self.save_seconds, *saves, *(each.passport.save_seconds for each in checkpoints))
        self.stop_seconds = _longest(self.stop_seconds, *(each.stop_seconds for each in attempts))

    def note_progress(self, engine: Engine, run: RunSpec, checkpoints: Sequence[Checkpoint]) -> None:
        """Add what a piece left, oldest first; a later piece may be a control, which ends before the goal."""
        if checkpoints:
            progress = checkpoints[-1].passport.progress
            if progress.done >= max(self._done, default=0.0):
                self._evidence, self._unit = engine.progress_evidence(run, checkpoints[-1].folder), progress.unit
            self._done += [each.passport.progress.done for each in checkpoints]

    def progress_line(self) -> str:
        """Return by what progress was read, and whether it grew; empty if nothing was saved."""
        if not self._done:
            return ""
        least, most = min(self._done), max(self._done)
        grown = f"it grew from {amount(least)} to {amount(most)} {self._unit}" if least < most else "it never grew"
        return f"progress was read: {self._evidence}; {grown}"

    def lines(self, run: RunSpec) -> Iterator[str]:
        """Yield the times, and what follows for the length of a segment."""
        times = {"start": self.start_seconds, "save": self.save_seconds, "stop": self.stop_seconds}
        told = [f"{name} {seconds:.1f} s" for name, seconds in times.items() if seconds is not None]
        if told:
            yield f"took at most: {', '.join(told)}"
        if self.start_seconds is not None:
            least = math.ceil((self.start_seconds + (self.stop_seconds or 0.0)) / CUT_SHARE / 6) / 10
            now = "" if run.segment_minutes >= least else f" (now {run.segment_minutes:g})"
            yield f"segment_minutes: {least:g} or more{now}, so that start and stop take {CUT_SHARE:.0%} of it"


def _longest(*seconds: float | None) -> float | None:
    return max((each for each in seconds if each is not None), default=None)
