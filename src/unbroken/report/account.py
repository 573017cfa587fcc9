"""The account: every second of a run, from its first submission on, by what it was spent on."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from unbroken.report.run_folders import run_folder
from unbroken.report.spans import WITHOUT_NODES, Kind, Span, Work, array_of, set_back, with_moments, work_of
from unbroken.slurm.queue import Queue
from unbroken.store.attempts import all_attempts, attempt_at_work
from unbroken.store.history import Attempt, EndKind
from unbroken.system.clock import duration


@dataclass(frozen=True)
class Waiting:
    """A job of the run that has not started yet, in Unix seconds; `eligible` is None while it is held."""

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
        """Return the share of useful work in the time that the cluster charges for; None before there is any."""
        allocated = sum(self.seconds[kind] for kind in Kind if kind not in WITHOUT_NODES)
        return self.seconds[Kind.USEFUL] / allocated if allocated else None

    def lines(self, name: str) -> Iterator[str]:
        """Yield what `unbroken account` prints: each kind with its share, and what the kills have cost."""
        whole = self.end - self.begin
        if whole <= 0:
            yield f"{name}: no attempt yet"
            return
        goodput = "" if self.goodput is None else f", goodput {self.goodput:.1%}"
        yield f"{name}: {duration(whole)} since it was first submitted{goodput}"
        for kind, seconds in self.seconds.items():
            if seconds > 0:
                yield f"  {kind.value:<12} {duration(seconds):>8} {seconds / whole:>7.1%}"
        if self.kills:
            count = "1 kill" if self.kills == 1 else f"{self.kills} kills"
            cost, without = duration(self.seconds[Kind.LOST]), duration(self.kept_by_checkpoints)
            yield f"  {count} cost {cost}; without checkpoints: {without}"

    def to_json(self, name: str) -> dict[str, object]:
        """Return plain values: Unix seconds and lengths in seconds."""
        return {
            "run": name,
            **vars(self),
            "goodput": self.goodput,
            "seconds": {kind.name.lower(): seconds for kind, seconds in self.seconds.items()},
            "spans": [[span.kind.name.lower(), span.begin, span.end, span.token] for span in self.spans],
        }


def account_of(name: str, base: Path, queue: Queue, attempts: Sequence[Attempt] | None = None) -> Account:
    """Return the account of a run up to now, or to its goal, from its folder and the queue."""
    places = run_folder(name, base)
    attempts = all_attempts(places) if attempts is None else attempts
    waiting = list(dict.fromkeys(_waiting(name, queue)))  # the tasks of an array wait since the same moment
    return account(attempts, time.time(), waiting, attempt_at_work(places, attempts))


def account(
    attempts: Sequence[Attempt], until: float, waiting: Sequence[Waiting] = (), at_work: Attempt | None = None
) -> Account:
    """Return the account of a run up to `until` (Unix seconds), or to its goal if it has reached that."""
    works = set_back([work_of(attempt, until) for attempt in [*_over(attempts), *([at_work] if at_work else [])]])
    end = _end(works, until)
    spans = [span for work in works for span in work.spans] + list(_waits(works, waiting, until))
    begin = min(min((span.begin for span in spans), default=end), end)
    spans = list(resolve_overlaps(spans, begin, end))
    seconds = dict.fromkeys(Kind, 0.0)
    for span in spans:
        seconds[span.kind] += span.seconds
    return Account(begin, end, tuple(spans), seconds, *_kills(works))


def resolve_overlaps(spans: Sequence[Span], begin: float, end: float) -> Iterator[Span]:
    """Yield for each moment the kind that comes first of those that overlap; IDLE where there is none."""
    order = {kind: place for place, kind in enumerate(Kind)}
    edges = sorted({begin, end, *(edge for span in spans for edge in (span.begin, span.end) if begin < edge < end)})
    opening = sorted((span for span in spans if span.end > span.begin), key=lambda span: span.begin)
    active: list[Span] = []
    place, last = 0, None
    for low, high in pairwise(edges):
        while place < len(opening) and opening[place].begin <= low:
            active.append(opening[place])
            place += 1
        active = [span for span in active if span.end > low]
        best = min(active, key=lambda span: (order[span.kind], span.token), default=Span(Kind.IDLE, low, high))
        if last is not None and (last.kind, last.token) == (best.kind, best.token):
            last = replace(last, end=high)
            continue
        if last is not None:
            yield last
        last = replace(best, begin=low, end=high)
    if last is not None:
        yield last


def _over(attempts: Sequence[Attempt]) -> Iterator[Attempt]:
    """Yield attempts that are over, each with the end of its job where the next one has asked for it."""
    for place, attempt in enumerate(attempts):
        attempt = with_moments(attempt)
        times = attempt.times
        known = attempts[place + 1].times.previous_job_ended if place + 1 < len(attempts) else None
        if known is not None and times.job_ended is None and times.ended is not None:
            attempt = replace(attempt, times=replace(times, job_ended=max(known, times.ended)))
        yield attempt


def _end(works: Sequence[Work], until: float) -> float:
    """Return when a run has reached its goal, else `until`."""
    ended = works[-1].attempt.times.ended if works and works[-1].attempt.kind is EndKind.FINISHED else None
    return until if ended is None else min(ended, until)


def _waits(works: Sequence[Work], waiting: Sequence[Waiting], until: float) -> Iterator[Span]:
    """Yield the time in the queue, and the time in which no job was submitted."""
    begun_arrays = set[str]()
    for work in works:
        times, array, token = work.attempt.times, array_of(work.attempt), work.attempt.token
        if times.submitted is not None:
            # Slurm calls a later task of an array eligible when it starts.
            eligible = times.submitted if array in begun_arrays else times.eligible or times.submitted
            free = min(max(times.submitted, eligible), work.started)
            begun_arrays |= {array} - {""}
            yield Span(Kind.IDLE, times.submitted, free, token)
            yield Span(Kind.QUEUED, free, work.started, token)
    for job in waiting:
        free = until if job.eligible is None else min(max(job.submitted, job.eligible), until)
        yield Span(Kind.IDLE, job.submitted, free)
        yield Span(Kind.QUEUED, free, until)
    begun = sorted([*(work.begun for work in works), *(job.submitted for job in waiting)])
    for work in works:
        if work.left is not None:
            place = bisect_right(begun, work.left)
            yield Span(Kind.IDLE, work.left, begun[place] if place < len(begun) else until, work.attempt.token)


def _kills(works: Sequence[Work]) -> tuple[int, float]:
    """Return how many attempts were killed or failed, and the work since the beginning that each would have cost."""
    kills, kept, done = 0, 0.0, 0.0
    for work in works:
        done += work.seconds(Kind.USEFUL, Kind.LOST)
        if work.attempt.kind in {EndKind.DIED, EndKind.FAILED}:
            kills += 1
            kept += done
        done -= work.seconds(Kind.LOST)
    return kills, kept


def _waiting(name: str, queue: Queue) -> Iterator[Waiting]:
    for job in queue.out:
        if job.run == name and job.is_waiting and job.submit_unix is not None:
            yield Waiting(job.submit_unix, None if job.is_stuck else job.submit_unix)
