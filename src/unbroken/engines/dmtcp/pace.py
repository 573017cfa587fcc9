"""Estimate how long a save takes from earlier saves, so that the last one begins just early enough."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

# Before anything is measured: what a slow file server takes.
FIRST_BYTES_PER_SECOND = 50e6
SAFETY = 1.5
LEARNED_SAVES = 5
LEAST_SECONDS = 0.5


@dataclass
class SaveSeconds:
    """Keep saves as pairs: the bytes in memory and files before, and the seconds that the save took."""

    saves: list[tuple[int, float]] = field(default_factory=list)

    def add(self, size_bytes: int, seconds: float) -> None:
        """Add a save; only the last few count: a program grows, a file server gets busy."""
        self.saves = [*self.saves, (size_bytes, round(seconds, 3))][-LEARNED_SAVES:]

    def seconds_for(self, size_bytes: int) -> float:
        """Return the time to allow for a save of this size.  More bytes take longer; fewer do not take less."""
        times = [seconds * max(1.0, size_bytes / max(before, 1)) for before, seconds in self.saves]
        longest = max(times, default=size_bytes / FIRST_BYTES_PER_SECOND)
        return SAFETY * longest + LEAST_SECONDS

    @staticmethod
    def of(saves: Iterable[Iterable[float]]) -> SaveSeconds:
        """Create it from the saves that a checkpoint lists."""
        return SaveSeconds([(int(size), float(seconds)) for size, seconds in saves])
