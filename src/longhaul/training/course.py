"""Where a training is on its way to the goal; standard library alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

UNITS = ("epochs", "steps")


@dataclass
class Position:
    """Where a training is.  `batch` counts the finished batches of the epoch, `step` those of all epochs."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    batches: int | None = None  # in this epoch, as far as known
    is_closed: bool = False  # in the middle of an epoch, its end has been run because the goal lies there


@dataclass
class Course:
    """A position and the goal, which is a number of `unit`."""

    position: Position = field(default_factory=Position)
    goal: float = math.inf
    unit: str = UNITS[0]
    is_in_batch: bool = False

    @property
    def done(self) -> float:
        """How far it is, in the unit of the goal."""
        at = self.position
        if self.unit == "steps":
            return at.step
        return at.epoch + (at.batch / at.batches if at.batches else 0)

    @property
    def is_epoch_over(self) -> bool:
        """True if no batch of this epoch is left to be trained; its end may still have to be run."""
        return self.position.batch == self.position.batches or self.done >= self.goal

    @property
    def is_over(self) -> bool:
        """True if the goal is reached and the end of the epoch that it lies in was run."""
        return self.done >= self.goal and (self.position.batch == 0 or self.position.is_closed)

    @property
    def reported(self) -> float:
        """What to say of how far it is as long as it is not finished.

        An epoch whose end was not run lies a hair before it, and all lies before the goal: so a checkpoint from there
        is not taken for the last, and what follows is seen as progress.
        """
        is_unclosed = self.position.batch == self.position.batches
        done = math.nextafter(self.done, 0) if is_unclosed else self.done
        return min(done, math.nextafter(self.goal, 0))

    def land(self) -> None:
        """Counts the batch that is in the air."""
        if self.is_in_batch:
            self.is_in_batch = False
            self.position.batch += 1
            self.position.step += 1

    def close_epoch(self) -> None:
        """Goes on to the next epoch; stays if the goal lies inside this one, because a later goal may lie behind."""
        self.land()
        at = self.position
        if self.done >= self.goal and at.batch != at.batches:
            at.is_closed = True
        else:
            at.epoch, at.batch = at.epoch + 1, 0
