"""Break the time of an attempt into spans by kind, from its line of history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from unbroken.store.history import Attempt
from unbroken.store.times import Times
from unbroken.system.clock import unix_seconds

# Progress is a float: what differs by less is the same.
SAME_PROGRESS = 1e-9


class Kind(Enum):
    """Name what a second of a run was spent on; if two kinds overlap, the one listed first here counts."""

    USEFUL = "useful work"  # the program advanced, and its work is in a checkpoint or still may be
    LOST = "lost"  # it advanced, and was killed, failed or set back before that was saved
    SAVING = "saving"  # the program stood still to save
    PUBLISHING = "publishing"  # the program had ended; its last state was made a checkpoint and recorded
    SUSPENDED = "suspended"  # the job had its nodes and was stopped (scontrol suspend, SIGSTOP)
    STARTING = "starting"  # from the start of the job to the program's first step
    UNUSED = "unused"  # from the end of the segment to the end of its job
    QUEUED = "queued"  # submitted and eligible, not started
    IDLE = "idle"  # no job was submitted, or the job was held


# No job has its nodes then, so a cluster does not charge for it.
WITHOUT_NODES = frozenset({Kind.QUEUED, Kind.IDLE})


@dataclass(frozen=True)
class Span:
    """An interval of one kind, in Unix seconds; `token` is the attempt that it belongs to, 0 if to none."""

    kind: Kind
    begin: float
    end: float
    token: int = 0

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Work:
    """An attempt with its spans; moments in Unix seconds.

    `begun` is its submission, or its start outside Slurm; `left` is when it had given its machine back, None while it
    works.
    """

    attempt: Attempt
    spans: tuple[Span, ...]
    begun: float
    started: float
    left: float | None

    def seconds(self, *kinds: Kind) -> float:
        """Return the sum of its spans of these kinds."""
        return sum(span.seconds for span in self.spans if span.kind in kinds)


def array_of(attempt: Attempt) -> str:
    """Return the number of the job array that a task such as `17_3` belongs to; empty for other jobs."""
    array, separator, _ = attempt.slurm_job.partition("_")
    return array if separator else ""


def with_moments(attempt: Attempt) -> Attempt:
    """Return an attempt that is over with the moments that its line gives where its times lack them."""
    times = attempt.times
    if times.ended is not None:
        return attempt
    started = _first(times.job_started, times.program_started, times.first_step)
    began = unix_seconds(attempt.started_utc) if started is None else started
    ended = began + max(attempt.work_seconds, 0.0)
    saved = _first(times.saved, ended if attempt.has_advanced else None)
    first_step = _first(times.first_step, times.program_started, began)
    return replace(attempt, times=replace(times, job_started=began, first_step=first_step, saved=saved, ended=ended))


def work_of(attempt: Attempt, until: float) -> Work:
    """Return the spans of one attempt; of a running one (its times have no end), up to `until`."""
    times = attempt.times
    ended = until if times.ended is None else times.ended
    known = _first(times.job_started, times.program_started, times.first_step)
    started = ended if known is None else known
    spans = _with_suspensions(_spans(attempt, started, ended), times.suspensions)
    spans = _with_tail(spans, Kind.USEFUL, Kind.SAVING, times.stall_seconds or 0.0)
    spans = _with_tail(spans, Kind.USEFUL, Kind.SUSPENDED, times.suspended_seconds or 0.0)
    begun = started if times.submitted is None else times.submitted
    left = None if times.ended is None else max(ended, times.job_ended or ended)
    return Work(attempt, tuple(spans), begun, started, left)


def set_back(works: Sequence[Work]) -> list[Work]:
    """Return the works, where what was done beyond the point from which a later attempt resumed is lost."""
    found, reached = list(works), [work.attempt.progress_to for work in works]
    for place, later in enumerate(works):
        if later.attempt.kind.is_before_work or not later.spans:
            continue
        for before in range(place - 1, -1, -1):
            if reached[before] <= later.attempt.progress_from:
                break
            found[before] = _cut_back(found[before], later.attempt)
            reached[before] = later.attempt.progress_from  # what is lost is lost once
    return found


def _cut_back(work: Work, later: Attempt) -> Work:
    attempt = work.attempt
    advance = attempt.progress_to - attempt.progress_from
    beyond = attempt.progress_to - max(later.progress_from, attempt.progress_from)
    if not attempt.has_advanced or attempt.unit != later.unit or advance <= 0 or beyond <= SAME_PROGRESS * advance:
        return work
    already = work.seconds(Kind.LOST) if attempt.kind.settles else 0.0
    lost = max(beyond / advance * (work.seconds(Kind.USEFUL) + already) - already, 0.0)
    return replace(work, spans=tuple(_with_tail(work.spans, Kind.USEFUL, Kind.LOST, lost)))


def _spans(attempt: Attempt, started: float, ended: float) -> Iterator[Span]:
    times = attempt.times
    parts = [(Kind.STARTING, ended)]
    first_step = _first(times.first_step, times.program_started)
    if first_step is not None and not attempt.kind.is_before_work:
        parts = [(Kind.STARTING, first_step), *_work_parts(attempt, times, first_step, ended)]
    if times.job_ended is not None and times.ended is not None:
        parts.append((Kind.UNUSED, times.job_ended))
    begin = started
    for kind, end in parts:
        yield Span(kind, begin, end, attempt.token)
        begin = end


def _work_parts(attempt: Attempt, times: Times, first_step: float, ended: float) -> Iterator[tuple[Kind, float]]:
    """Yield what the program did after its first step, each with its end."""
    program_ended = min(times.program_ended or ended, ended)
    stopped = min(times.stop_asked or program_ended, program_ended)
    keeps_all = times.ended is None or attempt.kind.settles  # what was saved after the stop was done before it
    saved = stopped if keeps_all else min(max(times.saved or first_step, first_step), stopped)
    has_saved_last = keeps_all or (times.saved is not None and times.saved >= stopped)
    yield Kind.USEFUL, saved
    yield Kind.LOST, stopped
    yield Kind.SAVING if has_saved_last else Kind.LOST, program_ended
    yield Kind.PUBLISHING, ended


def _with_suspensions(spans: Iterable[Span], suspensions: Sequence[tuple[float, float]]) -> Iterator[Span]:
    """Yield the spans that last, where the moments in which the job was stopped are `SUSPENDED`."""
    for span in spans:
        begin = span.begin
        for since, until in sorted(suspensions):
            since, until = max(since, begin), min(until, span.end)
            if since < until:
                yield from _lasting(replace(span, begin=begin, end=since))
                yield Span(Kind.SUSPENDED, since, until, span.token)
                begin = until
        yield from _lasting(replace(span, begin=begin))


def _lasting(span: Span) -> Iterator[Span]:
    if span.end > span.begin:
        yield span


def _with_tail(spans: Iterable[Span], of: Kind, becomes: Kind, seconds: float) -> Iterator[Span]:
    """Yield the spans, where the last `seconds` of one kind become another; when exactly it was is not known."""
    found: list[Span] = []
    for span in reversed(list(spans)):
        taken = min(seconds, span.seconds) if span.kind is of else 0.0
        seconds -= taken
        if taken > 0:
            found.append(Span(becomes, span.end - taken, span.end, span.token))
        if span.end - taken > span.begin:
            found.append(replace(span, end=span.end - taken))
    yield from reversed(found)


def _first(*moments: float | None) -> float | None:
    return next((moment for moment in moments if moment is not None), None)
