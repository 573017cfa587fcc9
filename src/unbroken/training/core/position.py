"""Track a training's position on its way to the goal; standard library alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unbroken.errors import CheckpointError
from unbroken.training.core.environment import Contract

UNITS = ("epochs", "steps")


@dataclass
class Position:
    """Hold a training's position.  `batch` counts the finished batches of the epoch, `step` the steps of all epochs.

    A step of several ranks takes a batch of each.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    epoch_step: int = 0  # what `step` was when the epoch began
    batches: int | None = None  # in this epoch, as far as known
    is_closed: bool = False  # in the middle of an epoch, its end has been run because the goal lies there


@dataclass
class Course:
    """Hold a position and the goal, which is a number of `unit`."""

    position: Position = field(default_factory=Position)
    goal: float = math.inf
    unit: str = UNITS[0]
    is_in_batch: bool = False
    per_step: int = 1  # how far a step brings `position.batch`, most often
    next_batch: int | None = None  # how many are finished after the step that is in the air; None: one more

    def restore(self, position: Mapping[str, Any]) -> None:
        """Go to the position that another one had."""
        vars(self.position).update(position)

    def aim(self, told: Contract | None, goal: float | None, unit: str | None) -> None:
        """Set the goal and its unit; the contract takes precedence.  Raise ValueError without a goal or known unit."""
        chosen = told.goal if told and told.goal is not None else goal
        self.unit = (told and told.goal_unit) or unit or UNITS[0]
        if chosen is None or self.unit not in UNITS:
            raise ValueError(f"epochs(): goal {chosen} in {self.unit!r}, allowed: a number, in {' or '.join(UNITS)}")
        self.goal = chosen

    @property
    def done(self) -> float:
        """Return how far it is, in the unit of the goal."""
        at = self.position
        if self.unit == "steps":
            return at.step
        return at.epoch + (at.batch / at.batches if at.batches else 0)

    @property
    def is_at_goal(self) -> bool:
        return self.done >= self.goal

    @property
    def is_epoch_over(self) -> bool:
        """Return True if no batch of this epoch is left to be trained; its end may still have to be run."""
        return self.position.batch == self.position.batches or self.is_at_goal

    @property
    def is_over(self) -> bool:
        """Return True if the goal is reached and the end of the epoch that it lies in was run."""
        return self.is_at_goal and (self.position.batch == 0 or self.position.is_closed)

    @property
    def reported(self) -> float:
        """Return how far it is as long as it is not finished.

        An epoch whose end was not run lies a hair before it, and all lies before the goal: so a checkpoint from there
        is not taken for the last, and what follows is seen as progress.
        """
        is_unclosed = self.position.batch == self.position.batches
        done = math.nextafter(self.done, 0) if is_unclosed else self.done
        return min(done, math.nextafter(self.goal, 0))

    def steps_left(self) -> float | None:
        """Return the steps of this and the coming epochs, as far as it is known how long they are."""
        if not math.isfinite(self.goal):
            return None
        left, batches = self.goal - self.done, self.position.batches
        if self.unit == "steps":
            return left
        return left * batches / self.per_step if batches else None

    def begin(self, batches: int, source: str) -> None:
        """Note how long the epoch is; raise CheckpointError with the source if it was begun with another length."""
        at = self.position
        if at.batch and at.batches != batches:
            raise CheckpointError(
                f"the checkpoint is from the middle of an epoch of {at.batches} batches, and {source} {batches}; "
                "allowed: the same data and batch size"
            )
        at.batches = batches

    @property
    def end_of_step(self) -> int:
        """Return how many batches are finished after the step that is in the air."""
        return self.position.batch + 1 if self.next_batch is None else self.next_batch

    def count_batch(self) -> None:
        """Count the batch that is in the air."""
        if self.is_in_batch:
            self.is_in_batch = False
            self.position.batch = self.end_of_step
            self.position.step += 1

    def find_end(self) -> None:
        """Note that no batch came, and so how long the epoch is; raise CheckpointError if that was known before."""
        at = self.position
        if at.batches is not None:
            raise CheckpointError(
                f"the loader ended after batch {at.batch} of {at.batches} in epoch {at.epoch}; allowed: a sampler that "
                "gives as many as it says, and goes on where its state_dict was made"
            )
        at.batches = at.batch

    def close_epoch(self) -> None:
        """Advance to the next epoch; stay if the goal lies inside this one, because a later goal may lie beyond it."""
        self.count_batch()
        at = self.position
        if self.is_at_goal and at.batch != at.batches:
            at.is_closed = True
        else:
            at.epoch, at.batch, at.epoch_step = at.epoch + 1, 0, at.step
