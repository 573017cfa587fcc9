"""The account: every second of a run from its first submission on, by what it was spent on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from unbroken.accounting.attempt_work import Work, set_back, work_of
from unbroken.accounting.kinds import Kind, Span
from unbroken.accounting.past import array_of
from unbroken.runs.history import Attempt
from unbroken.runs.segment_end import EndKind
from unbroken.runs.times import NO_TIMES

# What a cluster charges for.
ALLOCATED = (
    Kind.USEFUL,
    Kind.LOST,
    Kind.SAVING,
    Kind.PUBLISHING,
    Kind.SUSPENDED,
    Kind.STARTING,
    Kind.UNUSED,
)


@dataclass(frozen=True)
class Waiting:
    """A job of the run that is out and has not started yet, in Unix seconds; `eligible` is None while it is held."""

    submitted: float
    eligible: float | None = None


@dataclass(frozen=True)
class Account:
    """The spans are in order, do not overlap, and cover all from `begin` to `end`; seconds are their sums."""

    begin: float
    end: float
    spans: tuple[Span, ...]
    seconds: Mapping[Kind, float]
    kills: int  # attempts that were killed or failed after they had begun to work
    kept_by_checkpoints: float  # seconds of work that these would have cost in all, had nothing been saved

    @property
    def goodput(self) -> float | None:
        """The share of useful work in the time that the cluster charges for; None before there is any."""
        allocated = sum(self.seconds[kind] for kind in ALLOCATED)
        return self.seconds[Kind.USEFUL] / allocated if allocated else None


def account(attempts: Sequence[Attempt], until: float, waiting: Sequence[Waiting] = ()) -> Account:
    """The account of a run up to `until` (Unix seconds), or to its goal if it has reached that.

    Of one that is at work the last attempt is the live one: its times have no `ended`.
    """
    works = [work_of(attempt, until) for attempt in with_job_ends(attempts)]
    works = set_back(works)
    end = _end(works, until)
    claims = [claim for work in works for claim in work.spans] + list(_waits(works, waiting, until))
    begin = min((claim.begin for claim in claims), default=end)
    spans = tuple(paint(claims, min(begin, end), end))
    seconds = {kind: sum(span.end - span.begin for span in spans if span.kind is kind) for kind in Kind}
    kills, kept = _kills(works)
    return Account(min(begin, end), end, spans, seconds, kills, kept)


def with_job_ends(attempts: Sequence[Attempt]) -> Iterator[Attempt]:
    """The attempts, each with the end of its job where the next one has asked for it."""
    for place, attempt in enumerate(attempts):
        known = attempts[place + 1].times.previous_job_ended if place + 1 < len(attempts) else None
        if known is None or attempt.times.job_ended is not None or attempt.times.ended is None:
            yield attempt
        else:
            yield replace(attempt, times=replace(attempt.times, job_ended=max(known, attempt.times.ended)))


def paint(claims: Sequence[Span], begin: float, end: float) -> Iterator[Span]:
    """Each moment by the kind that comes first of those that claim it; UNKNOWN where none does."""
    order = {kind: place for place, kind in enumerate(Kind)}
    edges = sorted({begin, end, *(edge for claim in claims for edge in (claim.begin, claim.end) if begin < edge < end)})
    opening = sorted((claim for claim in claims if claim.end > claim.begin), key=lambda claim: claim.begin)
    active: list[Span] = []
    place, last = 0, None
    for low, high in pairwise(edges):
        while place < len(opening) and opening[place].begin <= low:
            active.append(opening[place])
            place += 1
        active = [claim for claim in active if claim.end > low]
        best = min(active, key=lambda claim: (order[claim.kind], claim.token), default=Span(Kind.UNKNOWN, low, high))
        if last is not None and (last.kind, last.token) == (best.kind, best.token):
            last = Span(last.kind, last.begin, high, last.token)
        else:
            if last is not None:
                yield last
            last = Span(best.kind, low, high, best.token)
    if last is not None:
        yield last


def _end(works: Sequence[Work], until: float) -> float:
    """A run is over when its goal is reached; one whose goal was raised goes on."""
    if works and works[-1].attempt.kind is EndKind.FINISHED and works[-1].ended is not None:
        return min(works[-1].ended, until)
    return until


def _waits(works: Sequence[Work], waiting: Sequence[Waiting], until: float) -> Iterator[Span]:
    """The time in the queue, and the time in which nobody had submitted, as the ends and submissions tell it."""
    begun_arrays = set[str]()
    for work in works:
        times, token = work.attempt.times, work.attempt.token
        if times.submitted is not None and times.job_started is not None:
            is_later_task = array_of(work.attempt) in begun_arrays  # Slurm calls it eligible when it starts
            eligible = times.submitted if is_later_task else times.eligible or times.submitted
            free = min(max(times.submitted, eligible), times.job_started)
            begun_arrays |= {array_of(work.attempt)} - {""}
            yield Span(Kind.IDLE, times.submitted, free, token)
            yield Span(Kind.QUEUED, free, times.job_started, token)
    for job in waiting:
        free = until if job.eligible is None else min(max(job.submitted, job.eligible), until)
        yield Span(Kind.IDLE, job.submitted, free)
        yield Span(Kind.QUEUED, free, until)
    begun = sorted([*(work.begun for work in works if work.begun is not None), *(job.submitted for job in waiting)])
    for work in works:
        if work.left is not None and work.attempt.times != NO_TIMES:
            place = bisect_right(begun, work.left)
            yield Span(Kind.IDLE, work.left, begun[place] if place < len(begun) else until)


def _kills(works: Sequence[Work]) -> tuple[int, float]:
    """How many attempts were killed or failed, and the work since the beginning that each would have cost."""
    kills, kept, done = 0, 0.0, 0.0
    for work in works:
        done += work.seconds(Kind.USEFUL, Kind.LOST)
        if work.attempt.kind in {EndKind.DIED, EndKind.FAILED}:
            kills += 1
            kept += done
        done -= work.seconds(Kind.LOST)
    return kills, kept
