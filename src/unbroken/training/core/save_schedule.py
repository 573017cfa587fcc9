"""Decide between two steps of a training when to save and when to leave; standard library alone."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable
from enum import Enum

from unbroken.training.core.environment import Contract, Signals, manifest_of
from unbroken.training.core.process_group import Processes, RankRequest
from unbroken.training.core.save_policy import Saves, best_interval

LOOK_SECONDS = 0.2
# Saves vary by half under load (docs/benchmarks.md).
SAFETY = 1.5
# From the end of a save to the end of the process: worker processes and the interpreter take their time.
LEAVE_SECONDS = 1.0
# Other jobs share the disk: saves in the background must not write all the time.
MOST_OF_THE_TIME = 10
# So soon after a job was resumed unbroken has asked Slurm for its new end.
RESUMED_SECONDS = 20.0
# A signal so late is the end of the job's time and not a preemption.
NEARLY_ALL = 0.9
# Enough steps to have met a slow one, few enough to forget the first, which warms everything up.
REMEMBERED_STEPS = 20


class Phase(Enum):
    """Name a kind of step; steps of one kind take about the same time."""

    START = "from an epoch's beginning to the end of its first batch"
    BATCH = "a batch"
    END = "from an epoch's last batch to the next epoch"


class SaveSchedule:
    """Keep the clock of one process.

    `save_seconds` is a guess, which counts until a save was made, here or for the checkpoint to resume from.
    """

    def __init__(
        self,
        contract: Contract,
        saves: Saves,
        signals: Signals,
        save_seconds: float,
        *,
        now: Callable[[], float] = time.monotonic,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._contract, self._saves, self._signals = contract, saves, signals
        self._now, self._rest, self._heard_of = now, rest, -math.inf
        self._deadline = contract.deadline
        known = manifest_of(contract.resume).get("save_seconds") if contract.resume else None
        self._save_seconds = self.stall_seconds = float(known) if isinstance(known, int | float) else save_seconds
        self._saved_step: int | None = None
        self.is_saving = False  # in the background
        self.when_saved: Callable[[int], None] = lambda step: None  # called with the step of each checkpoint
        self._opened = self._next_look = self._began = self._saved_at = now()
        self._steps: dict[Phase, deque[float]] = {phase: deque(maxlen=REMEMBERED_STEPS) for phase in Phase}
        self._is_over = self.is_time_up = False
        self.steps_ahead = 0  # more than the following one: what several ranks decide is done a step later

    def begin_step(self) -> None:
        self._began = self._now()

    def end_step(self, phase: Phase) -> None:
        if self._signals.resumed_at < self._began:  # else it was suspended for a part of that
            self._steps[phase].append(self._now() - self._began)

    @property
    def interval_seconds(self) -> float:
        """Return the time from one save to the next, where steps do not count."""
        if self._saves.mtbf_hours is None:
            return self._contract.save_seconds
        best = best_interval(self.stall_seconds, self._saves.mtbf_hours * 3600)
        return max(best, MOST_OF_THE_TIME * self._save_seconds)

    @property
    def chosen(self) -> dict[str, float]:
        """Return what to show of the interval, if it follows from a mean time between failures."""
        if self._saves.mtbf_hours is None or self._saves.steps is not None:
            return {}
        stall, interval = (float(f"{value:.3g}") for value in (self.stall_seconds, self.interval_seconds))
        return {"save_stall_seconds": stall, "save_every_seconds": interval}

    def begin_save(self, step: int) -> None:
        """Note that a save begins: the next is due a whole interval later."""
        self._saved_at, self._saved_step = self._now(), step

    def saved(self, seconds: float, stall_seconds: float | None = None) -> None:
        """Note that a checkpoint was handed over; the training paused for all of the seconds, or `stall_seconds`."""
        self._save_seconds = seconds
        self.stall_seconds = seconds if stall_seconds is None else stall_seconds
        if stall_seconds is None:
            self._saved_at = self._now()
        self.when_saved(self._saved_step or 0)

    def is_save_due(self, step: int) -> bool:
        """Return True if a save is due between this step and the next; `step` counts those of the whole training."""
        if self._saves.steps:
            if self._saved_step is None:
                self._saved_step = step - 1  # asked for the first time after the first step
            # At the same steps in every segment, also where a save had to wait for a step or two.
            return step // self._saves.steps > self._saved_step // self._saves.steps
        return self._now() - self._saved_at >= self.interval_seconds

    def must_stop(self, following: Phase) -> bool:
        """Return True if the following step might end too late, or we are asked to leave; then it stays true."""
        if not self._is_over:
            is_told = self._signals.heard() or self._is_asked()
            is_nearly_over = self._now() - self._opened >= NEARLY_ALL * (self._deadline - self._opened)
            self.is_time_up = is_nearly_over if is_told else self._is_out_of_time(following)
            self._is_over = is_told or self.is_time_up
        return self._is_over

    def _is_out_of_time(self, following: Phase) -> bool:
        """Return True if it is too late; a job that was suspended waits for the new end that it gets then."""
        while self._is_late(following):
            resumed = self._signals.resumed_at
            if resumed <= self._heard_of or self._now() - resumed > RESUMED_SECONDS:
                return True
            if not self._hear_of_deadline():
                self._rest(LOOK_SECONDS)
        return False

    def _hear_of_deadline(self) -> bool:
        """Return True if the deadline has moved; if it is not later, no suspension moved it, but a longer save."""
        moved = self._contract.deadline_file.moved()
        if moved is None:
            return False
        if moved > self._deadline + LOOK_SECONDS:
            self._heard_of = self._signals.resumed_at
        self._deadline = moved
        return True

    def _is_late(self, following: Phase) -> bool:
        longest = max((seconds for steps in self._steps.values() for seconds in steps), default=0.0)
        step = max(self._steps[following], default=longest)  # what was never seen is taken to last the longest
        saves = 2 if self.is_saving else 1  # the one that is being written is waited for
        needed = step + self.steps_ahead * longest + SAFETY * saves * self._save_seconds + LEAVE_SECONDS
        return self._now() + needed > self._deadline

    def _is_asked(self) -> bool:
        """Look at the two files, but not at each of a thousand steps a second: they may lie on a file server."""
        now = self._now()
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_SECONDS
        self._hear_of_deadline()
        return self._contract.stop is not None and os.path.exists(self._contract.stop)


class StopRequest:
    """Ask for a training, on all of its ranks, if it has to leave."""

    def __init__(self, pace: SaveSchedule, ranks: Processes) -> None:
        self._pace, self._ranks = pace, ranks.twin()
        self._is_agreed = False

    @property
    def requested(self) -> bool:
        """Return True if it is time to save and leave; then it stays True.

        That is after USR1, TERM or Ctrl-C, when the stop file is there, and before the deadline of the job.  All ranks
        get the same answer, and have to ask equally often; of several, the one to the question before.
        """
        if not self._is_agreed:
            self._is_agreed = self._ranks.agreed(self._wish, at_once=False).stop
            self._ranks.ask(self._wish)
        return self._is_agreed

    def _wish(self) -> RankRequest:
        return RankRequest(stop=self._pace.must_stop(Phase.BATCH))
