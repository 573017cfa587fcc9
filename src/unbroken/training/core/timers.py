"""Where the time of a training goes, added up over all of its segments; standard library alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

DATA, STEP = "data", "step"
# Enough steps to forget a slow start, few enough to feel that a machine has become slow.
REMEMBERED_STEPS = 100


@dataclass
class Total:
    """How often something was timed, and how long it took altogether."""

    count: int = 0
    seconds: float = 0.0


class Timers:
    """Totals under names: "data" is the time waited for batches, "step" that from a batch to the next."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._totals: dict[str, Total] = {}
        self.samples = 0
        self._pace: float | None = None  # seconds for a batch and its step, lately
        self._data_seconds = 0.0

    @contextmanager
    def timed(self, name: str, say: Callable[[str], None] | None = None) -> Iterator[None]:
        """Adds the time that the block takes to the total of the name, also if it ends by an exception.

        `say` is told it, with the mean.
        """
        began = self._now()
        try:
            yield
        finally:
            seconds = self._now() - began
            self._add(name, seconds)
            if say is not None:
                total = self._totals[name]
                say(f"{name}: {seconds:.3f} s (mean of {total.count}: {total.seconds / total.count:.3f} s)")

    @property
    def steps_per_second(self) -> float | None:
        """Lately; None before the first step."""
        return 1 / self._pace if self._pace else None

    def line(self) -> dict[str, Any]:
        """All of it, for a file and for a restart."""
        steps, data = self._totals.get(STEP, Total()), self._totals.get(DATA, Total())
        whole = steps.seconds + data.seconds
        return {
            "samples": self.samples,
            "seconds_per_step": round(whole / steps.count, 6) if steps.count else None,
            "samples_per_second": round(self.samples / whole, 3) if whole else None,
            "timers": {name: [total.count, round(total.seconds, 6)] for name, total in self._totals.items()},
        }

    def restore(self, line: Mapping[str, Any]) -> None:
        """Goes on from what `line` gave."""
        self.samples = line["samples"]
        self._totals = {name: Total(count, seconds) for name, (count, seconds) in line["timers"].items()}

    def _add(self, name: str, seconds: float) -> None:
        total = self._totals.setdefault(name, Total())
        total.count += 1
        total.seconds += seconds
        if name == DATA:
            self._data_seconds = seconds
        elif name == STEP:
            self._note_pace(self._data_seconds + seconds)

    def _note_pace(self, seconds: float) -> None:
        share = 1 / REMEMBERED_STEPS
        self._pace = seconds if self._pace is None else (1 - share) * self._pace + share * seconds
