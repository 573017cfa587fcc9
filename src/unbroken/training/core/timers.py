"""Add up where the time of a training goes, over all of its segments; standard library alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

DATA, STEP = "data", "step"
# Enough steps to forget a slow start, few enough to feel that a machine has become slow.
REMEMBERED_STEPS = 100


class Timers:
    """Hold totals under names: "data" is the time waited for batches, "step" that from a batch to the next."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._totals: dict[str, tuple[int, float]] = {}  # how often, and how many seconds
        self.samples = 0
        self._data_seconds = 0.0  # that the last batch was waited for
        self._pace: float | None = None  # seconds for a batch and its step, lately

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time that the block takes to the total of the name, also if it ends by an exception."""
        began = self._now()
        try:
            yield
        finally:
            count, total = self._totals.get(name, (0, 0.0))
            seconds = self._now() - began
            self._totals[name] = count + 1, total + seconds
            if name == DATA:
                self._data_seconds = seconds
            elif name == STEP:
                now, share = self._data_seconds + seconds, 1 / REMEMBERED_STEPS
                self._pace = now if self._pace is None else (1 - share) * self._pace + share * now

    @property
    def steps_per_second(self) -> float | None:
        """Return the pace of the last steps; None before the first one."""
        return 1 / self._pace if self._pace else None

    def line(self) -> dict[str, Any]:
        """Return all of it, for a file and for a restart."""
        (steps, step_seconds), (_, data_seconds) = (self._totals.get(name, (0, 0.0)) for name in (STEP, DATA))
        whole = step_seconds + data_seconds
        return {
            "samples": self.samples,
            "seconds_per_step": round(whole / steps, 6) if steps else None,
            "samples_per_second": round(self.samples / whole, 3) if whole else None,
            "timers": {name: [count, round(seconds, 6)] for name, (count, seconds) in self._totals.items()},
        }

    def restore(self, line: Mapping[str, Any]) -> None:
        """Continue from what `line` gave."""
        self.samples = line["samples"]
        self._totals = {name: (count, seconds) for name, (count, seconds) in line["timers"].items()}
