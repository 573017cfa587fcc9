"""Whether progress was read in what the pieces of a rehearsal saved, by what, and whether it grew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from unbroken.engines.base import Engine
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.progress import amount
from unbroken.runs.run import Run


@dataclass
class ProgressRead:
    """What was read so far; `how` is what read it, in the words of the engine."""

    how: str = ""
    unit: str = ""
    values: list[float] = field(default_factory=list)

    def note(self, engine: Engine, run: Run, checkpoints: Sequence[Checkpoint]) -> None:
        """Add what a piece left, oldest first; how it was read is told of the furthest checkpoint.

        A piece that comes later may be a control, which ends before the goal.
        """
        if checkpoints:
            newest = checkpoints[-1]
            if newest.passport.progress.done >= max(self.values, default=0.0):
                self.how = engine.progress_evidence(run, newest.folder)
                self.unit = newest.passport.progress.unit
            self.values += [each.passport.progress.done for each in checkpoints]

    def line(self) -> str:
        """In one line; empty if nothing was saved, of which the reason of the verdict speaks."""
        if not self.values:
            return ""
        least, most = min(self.values), max(self.values)
        if least < most:
            grown = f"it grew from {amount(least)} to {amount(most)} {self.unit}"
        elif len(self.values) > 1 or not most:
            grown = f"it never grew: it is {amount(most)} {self.unit} in all {len(self.values)} checkpoints"
        else:
            grown = f"it came to {amount(most)} {self.unit}"
        return f"progress was read: {self.how}; {grown}"
