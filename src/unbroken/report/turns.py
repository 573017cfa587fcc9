"""Sample the progress and the times of a run's last attempts, for its forecast."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from unbroken.report.account import account
from unbroken.report.spans import WITHOUT_NODES, Kind, array_of, with_moments
from unbroken.store.history import Attempt
from unbroken.system.clock import unix_seconds

# A run changes: its pace is that of so many attempts ...
RECENT = 5
# ... and what else it meets (kills, saves, waits) is rarer, so more of them are looked at.
REMEMBERED = 12
# Attempts that did no work are passed over, among so many.
LOOKED_AT = 200
# A driver or a dependent job follows at once; what comes later, a person has submitted.
IDLE_SECONDS = 900.0
# What the job of an attempt does apart from useful work.
OTHER = tuple(kind for kind in Kind if kind not in {*WITHOUT_NODES, Kind.USEFUL})
# With fewer waits in the partition of the last attempt, those in all partitions count.
LEAST_WAITS = 3


@dataclass(frozen=True)
class Turn:
    """One attempt with the seconds of the account that it took, by kind."""

    attempt: Attempt
    seconds: Mapping[Kind, float]

    @property
    def advance(self) -> float:
        return self.attempt.progress_to - self.attempt.progress_from

    def took(self, *kinds: Kind) -> float:
        """Return the seconds that the attempt spent on these kinds."""
        return sum(self.seconds.get(kind, 0.0) for kind in kinds)

    @property
    def limit_seconds(self) -> float:
        """Return the length that its segment was given; 0 if that is not known."""
        unused = self.attempt.unused_seconds
        return max(self.attempt.work_seconds + unused, 0.0) if unused is not None else 0.0


def turns_of(attempts: Sequence[Attempt]) -> list[Turn]:
    """Return the last attempts, oldest first, without damaged ones and those in another unit than the last one's."""
    sound = [attempt for attempt in attempts[-LOOKED_AT:] if _is_sound(attempt)]
    unit = next((attempt.unit for attempt in reversed(sound) if attempt.unit), "")
    other = max((place for place, each in enumerate(sound, 1) if each.unit not in {unit, ""}), default=0)
    worked = [attempt for attempt in sound[other:] if not attempt.kind.is_before_work]
    found = [with_moments(attempt) for attempt in worked[-REMEMBERED:]]
    seconds: dict[int, dict[Kind, float]] = defaultdict(lambda: defaultdict(float))
    for span in account(found, math.inf).spans:
        seconds[span.token][span.kind] += span.seconds
    return [Turn(attempt, seconds[attempt.token]) for attempt in found]


def log_rates(turns: Sequence[Turn]) -> list[float]:
    """Return the logarithms of the units per second of useful work, of the last attempts that advanced."""
    # All that it took counts where its first step was seen as late as its last one.
    advanced = [(turn.advance, turn.took(Kind.USEFUL) or turn.took(*OTHER)) for turn in turns if turn.advance > 0]
    return [math.log(advance) - math.log(seconds) for advance, seconds in advanced if seconds > 0][-RECENT:]


def start_seconds(turns: Sequence[Turn]) -> float:
    """Return the median of the seconds from the start of a job to its program's first step."""
    return median(turn.took(Kind.STARTING) for turn in turns[-RECENT:]) if turns else 0.0


def waits(turns: Sequence[Turn]) -> list[float]:
    """Return the seconds between the attempts, as far as a queue or a hand-off took them.

    Of a run that is an array by now, the first task of an array is left out: the others age while those before them
    work, so the waits between them are what is to be expected.
    """
    found = list(_waits(turns))
    now = turns[-1].attempt.slurm_partition if turns else ""
    same = [seconds for partition, seconds in found if partition in {now, ""}]
    return same if len(same) >= LEAST_WAITS else [seconds for _, seconds in found]


def _waits(turns: Sequence[Turn]) -> Iterator[tuple[str, float]]:
    is_array = bool(turns) and array_of(turns[-1].attempt) != ""
    if turns and not is_array and turns[0].attempt.times.submitted is not None:
        yield turns[0].attempt.slurm_partition, turns[0].took(Kind.QUEUED)
    for before, after in pairwise(turns):
        if before.attempt.slurm_cluster != after.attempt.slurm_cluster:
            continue
        if is_array and array_of(before.attempt) != array_of(after.attempt):
            continue
        idle = before.took(Kind.IDLE)
        if idle <= IDLE_SECONDS or after.attempt.times.submitted is not None:
            yield after.attempt.slurm_partition, after.took(Kind.QUEUED) + (idle if idle <= IDLE_SECONDS else 0.0)


def _is_sound(attempt: Attempt) -> bool:
    """Return False for figures that a damaged line may hold."""
    try:
        figures = (attempt.progress_from, attempt.progress_to, attempt.work_seconds, unix_seconds(attempt.started_utc))
        return all(math.isfinite(figure) for figure in figures) and attempt.work_seconds >= 0
    except (TypeError, ValueError, OverflowError):
        return False
