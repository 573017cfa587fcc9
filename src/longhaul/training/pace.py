"""When to save and when to leave, decided between two steps of a training; standard library alone."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from pathlib import Path

LOOK_SECONDS = 0.2
# Saves vary by half under load (docs/benchmarks.md).
SAFETY = 1.5
# From the end of a save to the end of the process: worker processes and the interpreter take their time.
LEAVE_SECONDS = 1.0
# Enough steps to have met a slow one, few enough to forget the first, which warms everything up.
REMEMBERED_STEPS = 20


class Phase(Enum):
    """Steps of one kind take about the same time."""

    START = "from an epoch's beginning to the end of its first batch"
    BATCH = "a batch"
    END = "from an epoch's last batch to the next epoch"


class Pace:
    """The clock of one process.  `deadline` is on the monotonic clock, the other times are lengths in seconds."""

    def __init__(
        self,
        deadline: float,
        stop: Path,
        save_interval: float,
        save_seconds: float,
        has_signal: Callable[[], bool],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deadline, self._stop, self._save_interval = deadline, stop, save_interval
        self._has_signal, self._now = has_signal, now
        self._save_seconds = save_seconds
        self._next_look = self._began = self._saved_at = now()
        self._steps: dict[Phase, deque[float]] = {phase: deque(maxlen=REMEMBERED_STEPS) for phase in Phase}
        self._is_over = False

    def begin_step(self) -> None:
        self._began = self._now()

    def end_step(self, phase: Phase) -> None:
        self._steps[phase].append(self._now() - self._began)

    def saved(self, seconds: float) -> None:
        """A save is done that took so long: the next is due after a whole interval."""
        self._save_seconds = seconds
        self._saved_at = self._now()

    def is_save_due(self) -> bool:
        return self._now() - self._saved_at >= self._save_interval

    def must_stop(self, following: Phase) -> bool:
        """True if the following step might end too late, or somebody wants us to leave; then it stays true."""
        self._is_over = self._is_over or self._has_signal() or self._is_late(following) or self._is_asked()
        return self._is_over

    def _is_late(self, following: Phase) -> bool:
        # What was never seen is taken to last as long as the longest thing that was.
        known = self._steps[following] or [seconds for steps in self._steps.values() for seconds in steps]
        needed = max(known, default=0.0) + SAFETY * self._save_seconds + LEAVE_SECONDS
        return self._now() + needed > self._deadline

    def _is_asked(self) -> bool:
        """Looks for the stop file, but not at each of a thousand steps a second: it may lie on a file server."""
        now = self._now()
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_SECONDS
        return os.path.exists(self._stop)
