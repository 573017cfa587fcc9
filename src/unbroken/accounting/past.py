"""What the attempts of a run tell about those to come: pace, gaps between them, kills and what those cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from unbroken.runs.history import Attempt
from unbroken.runs.segment_end import EndKind
from unbroken.system.clock import unix_seconds

# A run changes: machine, queue and program are those of the last attempts.
REMEMBERED = 40
# A driver or a dependent job follows at once; what comes later, a person has sent.
IDLE_SECONDS = 900.0
# Moments in old histories are whole seconds, and file servers' clocks differ by a little.
CLOCK_SECONDS = 5.0
# Waits depend on the length that is asked for; within this factor they are compared.
SIMILAR_LENGTH = 2.0
# With fewer waits of the same partition, or length, all are compared.
LEAST_GAPS = 3


@dataclass(frozen=True)
class Pace:
    """What one attempt advanced: the logarithm of units a second at work, and how many seconds that was."""

    log_rate: float
    seconds: float


@dataclass(frozen=True)
class Gap:
    """From the end of one attempt's work to the beginning of the next one's; `began` in Unix seconds.

    May be a little below 0, as moments are rounded.
    """

    seconds: float
    began: float


@dataclass(frozen=True)
class Past:
    """Facts of the last attempts, oldest first; lengths in seconds."""

    attempts: int
    paces: tuple[Pace, ...]
    gaps: tuple[Gap, ...]
    has_queue: bool  # its jobs wait for room
    lengths: tuple[float, ...]  # of the segments that went on until their time was up
    spares: tuple[float, ...]  # what those left of their limits; less than nothing where they overran them
    work_seconds: float  # of all
    ended_early: int  # killed, failed or told to leave
    killed: int  # of those, the ones that may have lost work
    save_seconds: float  # from one checkpoint to the next
    start_seconds: float  # until a program's first step; 0 where no attempt tells
    last_end: float | None
    last_progress: float | None


def past_of(attempts: Sequence[Attempt], segment_seconds: float | None = None) -> Past:
    """What is known; attempts in another unit than the last one's, and impossible figures, are left out."""
    told = [attempt for attempt in attempts if _is_sound(attempt)]
    unit = next((attempt.unit for attempt in reversed(told) if attempt.unit), "")
    other = max((place for place, each in enumerate(told, 1) if each.unit not in {unit, ""}), default=0)
    told = [attempt for attempt in told[other:] if not attempt.kind.is_before_work][-REMEMBERED:]
    full = [attempt for attempt in told if attempt.kind is EndKind.PAUSED]
    early = [attempt for attempt in told if not attempt.kind.settles]
    start = _start_seconds(told)
    last = told[-1] if told else None
    return Past(
        attempts=len(told),
        paces=tuple(_paces(told, start)),
        gaps=tuple(_gaps(told, segment_seconds)),
        has_queue=any(attempt.slurm_job for attempt in told),
        lengths=tuple(attempt.work_seconds for attempt in full),
        spares=tuple(attempt.unused_seconds for attempt in full if attempt.unused_seconds is not None),
        work_seconds=sum(map(_worked, told)),
        ended_early=len(early),
        killed=sum(attempt.kind.is_failure for attempt in early),
        save_seconds=_save_seconds(told),
        start_seconds=start,
        last_end=_end(last) if last else None,
        last_progress=last.progress_to if last else None,
    )


def _is_sound(attempt: Attempt) -> bool:
    """False for figures that a damaged or foreign line may hold."""
    try:
        figures = (attempt.progress_from, attempt.progress_to, attempt.work_seconds, _begin(attempt))
        return all(math.isfinite(figure) for figure in figures) and attempt.work_seconds >= 0
    except (TypeError, ValueError, OverflowError):
        return False


def _begin(attempt: Attempt) -> float:
    known = attempt.times.program_started
    return unix_seconds(attempt.started_utc) if known is None else known


def _worked(attempt: Attempt) -> float:
    """Its seconds at work; of a killed one to its last sign of life if that is known, else to its last checkpoint."""
    ended = attempt.times.ended
    lived = ended - _begin(attempt) if ended is not None and attempt.kind is EndKind.DIED else 0.0
    return max(lived, attempt.work_seconds)


def _end(attempt: Attempt) -> float:
    return _begin(attempt) + _worked(attempt)


def _paces(attempts: Iterable[Attempt], start_seconds: float) -> Iterable[Pace]:
    for attempt in attempts:
        advance, seconds = attempt.progress_to - attempt.progress_from, attempt.work_seconds - start_seconds
        if advance > 0 and seconds > 0:
            yield Pace(math.log(advance) - math.log(seconds), seconds)


def _start_seconds(attempts: Iterable[Attempt]) -> float:
    known = [attempt.times.first_step - _begin(attempt) for attempt in attempts if attempt.times.first_step is not None]
    return median(map(max, known, [0.0] * len(known))) if known else 0.0


def _save_seconds(attempts: Iterable[Attempt]) -> float:
    known = [attempt.work_seconds / attempt.saves for attempt in attempts if attempt.saves and attempt.saves > 0]
    return median(known) if known else math.inf


def _gaps(attempts: Sequence[Attempt], segment_seconds: float | None) -> list[Gap]:
    """Return those that are waits: none in which a person was missing, or of which an unknown part was lost work.

    Of a run that is an array by now, the waits of first tasks are left out: the others age while those before them
    work, so the gaps between them are what is to be expected.
    """
    is_array = bool(attempts) and is_array_task(attempts[-1])
    first = [(gap, attempts[0])] if attempts and not is_array and (gap := _first_wait(attempts[0])) else []
    pairs = [pair for pair in pairwise(attempts) if not (is_array and _is_first_of_later_array(*pair))]
    found = first + [(gap, after) for before, after in pairs if (gap := _gap(before, after)) is not None]
    partition = next((each.slurm_partition for each in reversed(attempts) if each.slurm_partition), "")
    there = [(gap, after) for gap, after in found if after.slurm_partition in {partition, ""}]
    same = [(gap, after) for gap, after in there if _is_similar(after, segment_seconds)]
    enough = min(LEAST_GAPS, len(found))
    return [gap for gap, _ in next((gaps for gaps in (same, there) if len(gaps) >= enough), found)]


def is_array_task(attempt: Attempt) -> bool:
    """Return True for a task of a job array, such as `17_3`."""
    return array_of(attempt) != ""


def array_of(attempt: Attempt) -> str:
    """Return the number of the array that a task belongs to; empty for other jobs."""
    array, separator, _ = (attempt.slurm_job or "").partition("_")
    return array if separator else ""


def _is_first_of_later_array(before: Attempt, after: Attempt) -> bool:
    """Return True for a job that was submitted when the one before it had ended: by a new start of snakemake."""
    arrays = {(attempt.slurm_job or "").partition("_")[0] for attempt in (before, after)}
    return len(arrays) > 1 and after.times.submitted is not None and after.times.submitted > _end(before)


def _first_wait(attempt: Attempt) -> Gap | None:
    sent = attempt.times.submitted
    return None if sent is None or _begin(attempt) < sent else Gap(_begin(attempt) - sent, sent)


def _gap(before: Attempt, after: Attempt) -> Gap | None:
    if before.slurm_cluster != after.slurm_cluster:
        return None
    if before.kind is EndKind.DIED and before.times.ended is None:
        return None
    began, seconds = _end(before), _begin(after) - _end(before)
    sent = after.times.submitted
    if sent is not None:
        idle = sent - began
        seconds, began = (seconds - idle, sent) if idle > IDLE_SECONDS else (seconds, began)
    elif before.start and after.start and before.start != after.start:
        return None  # somebody started snakemake again in between
    return Gap(seconds, began) if seconds >= -CLOCK_SECONDS else None


def _is_similar(attempt: Attempt, segment_seconds: float | None) -> bool:
    if segment_seconds is None or attempt.unused_seconds is None:
        return True
    asked = attempt.work_seconds + max(attempt.unused_seconds, 0.0)
    return segment_seconds / SIMILAR_LENGTH <= asked <= segment_seconds * SIMILAR_LENGTH
