"""Which length of a segment, and which partition, brings a run to its goal first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

# So many waits of one's own jobs count more than what Slurm guesses now.
LEAST_WAITS = 5
# Jobs whose limit is within this factor are alike.
SIMILAR_LENGTH = 2.0
# Parts of the partition's limit that are looked at.
SHARES = (1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16)
LEAST_MINUTES = 10
# A difference below that is none.
WORTH = 0.1
# Beyond the work that is left, for a job that is to do all of it: as the forecast's pace may be wrong by.
SPARE = 1.2


@dataclass(frozen=True)
class Waits:
    """What is known of the wait for a job: Slurm's guess of now, and the waits of jobs that were like it; seconds."""

    guessed: float
    seen: tuple[float, ...] = ()

    @property
    def is_known(self) -> bool:
        """True if there are enough of the past."""
        return len(self.seen) >= LEAST_WAITS

    @property
    def likely(self) -> float:
        return median(self.seen) if self.is_known else self.guessed

    @property
    def late(self) -> float:
        """The 90 % quantile, where it is known."""
        return quantiles(self.seen, n=10, method="inclusive")[-1] if self.is_known else self.guessed


@dataclass(frozen=True)
class Work:
    """What is left of a run, in seconds at its pace, and what each segment loses: its start, and its margin.

    `between_seconds` is the wait between two tasks of its array, as its history shows it; None if its segments are
    single jobs, each of which waits as the first one does.
    """

    left_seconds: float
    cut_seconds: float
    between_seconds: float | None = None


@dataclass(frozen=True)
class Estimate:
    """How many segments the rest of the work takes, and the seconds to the goal with all waits."""

    segments: int
    seconds: float


def estimate(work: Work, minutes: float, waits: Waits) -> Estimate | None:
    """Return what a length leads to; None for one that is over before its program has begun.

    Tasks of an array age while those before them work, so the queue's wait counts once; single jobs wait each.
    """
    usable = minutes * 60 - work.cut_seconds
    if usable <= 0:
        return None
    count = max(math.ceil(work.left_seconds / usable - 1e-9), 1)
    spent = work.left_seconds + count * work.cut_seconds
    between = waits.likely if work.between_seconds is None else work.between_seconds
    return Estimate(count, spent + waits.likely + (count - 1) * between)


def lengths(limit_minutes: float, now_minutes: float, work: Work | None) -> list[int]:
    """The lengths to look at in a partition, longest first.

    Parts of its limit, that of now, and one that does all the rest; none that is longer.
    """
    whole = math.ceil((work.left_seconds * SPARE + work.cut_seconds) / 60) if work is not None else math.inf
    parts = [int(limit_minutes * share) for share in SHARES] if math.isfinite(limit_minutes) else []
    found = {minutes for minutes in parts if LEAST_MINUTES <= minutes < whole}
    found |= {int(each) for each in (math.ceil(now_minutes), whole) if each <= limit_minutes and math.isfinite(each)}
    return sorted(found, reverse=True)


def similar(waits: Sequence[tuple[float, float]], minutes: float) -> Iterator[float]:
    """The waits, of pairs with the limit in minutes, of jobs of about this length."""
    for limit, seconds in waits:
        if minutes / SIMILAR_LENGTH <= limit <= minutes * SIMILAR_LENGTH:
            yield seconds
