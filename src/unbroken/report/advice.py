"""Find the length of a segment, and the partition, that bring a run to its goal first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from unbroken.report.run_folders import run_folder
from unbroken.report.spans import array_of
from unbroken.report.turns import RECENT, Turn, log_rates, start_seconds, turns_of, waits
from unbroken.runs.attempts import all_attempts
from unbroken.runs.run import RunSpec
from unbroken.runs.store import Store

# So many waits of the user's own jobs count more than what Slurm guesses now.
LEAST_WAITS = 5
# Jobs whose limit is within this factor are alike.
SIMILAR_LENGTH = 2.0
# Parts of the partition's limit that are looked at.
SHARES = (1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16)
LEAST_MINUTES = 10
# Beyond the work that is left, for a job that is to do all of it: the pace may be wrong by as much.
SPARE = 1.2


@dataclass(frozen=True)
class Waits:
    """Hold what is known of the wait for a job, in seconds: Slurm's present guess, and the waits of similar jobs."""

    guessed: float
    seen: tuple[float, ...] = ()

    @property
    def is_known(self) -> bool:
        """Return True if there are enough of the past."""
        return len(self.seen) >= LEAST_WAITS

    @property
    def likely(self) -> float:
        """Return the median, where it is known."""
        return median(self.seen) if self.is_known else self.guessed

    @property
    def late(self) -> float:
        """Return the 90 % quantile, where it is known."""
        return quantiles(self.seen, n=10, method="inclusive")[-1] if self.is_known else self.guessed


@dataclass(frozen=True)
class Rest:
    """Hold the work left of a run, in seconds at its pace, and the seconds that each segment loses: start and margin.

    `between_seconds` is the wait between two tasks of its array, as its history shows it; None if its segments are
    single jobs, which each wait as the first one does.
    """

    left_seconds: float
    cut_seconds: float
    between_seconds: float | None = None


@dataclass(frozen=True)
class Estimate:
    """Hold the number of segments that the remaining work takes, and the seconds to the goal with all waits."""

    segments: int
    seconds: float


def rest_of(run: RunSpec, directory: Path) -> Rest | None:
    """Return the work left of a run at the pace of its last attempts; None while nothing is known."""
    places = run_folder(run.name, directory)
    newest = next(reversed(Store(places.checkpoints).readable()), None)
    turns = turns_of(all_attempts(places))
    rates = log_rates(turns)
    if newest is None or not rates:
        return None
    progress = newest.passport.progress
    goal = run.goal if run.goal is not None else progress.goal
    if goal is None:
        return None
    unused = [turn.attempt.unused_seconds for turn in turns if turn.attempt.kind.settles]
    spare = [seconds for seconds in unused if seconds is not None][-RECENT:]
    cut = start_seconds(turns) + max(median(spare) if spare else 0.0, 0.0)
    return Rest(max(goal - progress.done, 0.0) / math.exp(median(rates)), cut, between(turns))


def between(turns: Sequence[Turn]) -> float | None:
    """Return the median wait between two tasks of the run's array, 0 before one was seen; None of single jobs."""
    on_slurm = [turn for turn in turns if turn.attempt.slurm_job]
    if not on_slurm:
        return 0.0
    if not array_of(on_slurm[-1].attempt):
        return None
    return median(waits(on_slurm)[-RECENT:] or [0.0])


def estimate(rest: Rest, minutes: float, known: Waits) -> Estimate | None:
    """Return what a length leads to; None for one that is over before its program has begun.

    Tasks of an array age while those before them work, so the queue's wait counts once; single jobs wait each.
    """
    usable = minutes * 60 - rest.cut_seconds
    if usable <= 0:
        return None
    count = max(math.ceil(rest.left_seconds / usable - 1e-9), 1)
    spent = rest.left_seconds + count * rest.cut_seconds
    later = known.likely if rest.between_seconds is None else rest.between_seconds
    return Estimate(count, spent + known.likely + (count - 1) * later)


def lengths(limit_minutes: float, now_minutes: float, rest: Rest | None) -> list[int]:
    """Return the lengths to look at in a partition, longest first.

    Parts of its limit, that of now, and one that does all the rest; none that is longer.
    """
    whole = math.ceil((rest.left_seconds * SPARE + rest.cut_seconds) / 60) if rest is not None else math.inf
    parts = [int(limit_minutes * share) for share in SHARES] if math.isfinite(limit_minutes) else []
    found = {minutes for minutes in parts if LEAST_MINUTES <= minutes < whole}
    found |= {int(each) for each in (math.ceil(now_minutes), whole) if each <= limit_minutes and math.isfinite(each)}
    return sorted(found, reverse=True)


def similar(past: Sequence[tuple[float, float]], minutes: float) -> Iterator[float]:
    """Yield the waits, of pairs with the limit in minutes, of jobs of about this length."""
    for limit, seconds in past:
        if minutes / SIMILAR_LENGTH <= limit <= minutes * SIMILAR_LENGTH:
            yield seconds
