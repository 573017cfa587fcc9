"""What one attempt did with its time, from its line of history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from unbroken.accounting.kinds import Kind, Span
from unbroken.runs.history import Attempt
from unbroken.runs.times import NO_TIMES, Times
from unbroken.system.clock import unix_seconds

# Progress is a float: what differs by less is the same.
SAME_PROGRESS = 1e-9


@dataclass(frozen=True)
class Work:
    """An attempt with the spans that it claims; moments in Unix seconds, None where nobody knows.

    `begun` is when somebody first wanted it, `ended` its own end, `left` when it had given its machine back.
    """

    attempt: Attempt
    spans: tuple[Span, ...]
    begun: float | None
    ended: float | None
    left: float | None

    def seconds(self, *kinds: Kind) -> float:
        """The sum of its spans of these kinds."""
        return sum(span.end - span.begin for span in self.spans if span.kind in kinds)


def work_of(attempt: Attempt, until: float) -> Work:
    """The spans of one attempt; of one that is at work, up to `until`."""
    times = attempt.times
    if times == NO_TIMES:
        return _by_old_line(attempt)
    spans = tuple(_stopped(_spans(attempt, times, until), times.suspensions))
    begun = _first(times.submitted, times.job_started, times.program_started, times.ended)
    left = None if times.ended is None else max(times.ended, times.job_ended or times.ended)
    return Work(attempt, spans, begun, times.ended, left)


def set_back(works: Sequence[Work]) -> list[Work]:
    """The same, where what was done beyond the point from which a later attempt went on is lost."""
    found, reached = list(works), [work.attempt.progress_to for work in works]
    for place, later in enumerate(works):
        if later.attempt.kind.is_before_work or not later.spans:
            continue
        for before in range(place - 1, -1, -1):
            if reached[before] <= later.attempt.progress_from:
                break
            found[before] = _cut_back(found[before], later.attempt)
            reached[before] = later.attempt.progress_from  # what is lost is lost once, and looked at once
    return found


def _cut_back(work: Work, later: Attempt) -> Work:
    attempt = work.attempt
    advance = attempt.progress_to - attempt.progress_from
    beyond = attempt.progress_to - max(later.progress_from, attempt.progress_from)
    if not attempt.has_advanced or attempt.unit != later.unit or advance <= 0 or beyond <= SAME_PROGRESS * advance:
        return work
    useful = sum(span.end - span.begin for span in work.spans if span.kind is Kind.USEFUL)
    already = work.seconds(Kind.LOST) if attempt.kind.settles else 0.0
    lost = max(beyond / advance * (useful + already) - already, 0.0)
    return replace(work, spans=tuple(_with_tail(work.spans, Kind.USEFUL, Kind.LOST, lost)))


def _spans(attempt: Attempt, times: Times, until: float) -> Iterator[Span]:
    token, ended = attempt.token, until if times.ended is None else times.ended
    started = _first(times.job_started, times.program_started, times.first_step, ended) or ended
    first_step = _first(times.first_step, times.program_started)
    if attempt.kind.is_before_work or first_step is None:
        yield Span(Kind.STARTING, started, ended, token)
    else:
        yield Span(Kind.STARTING, started, first_step, token)
        yield from _work_spans(attempt, times, first_step, ended)
    if times.job_ended is not None and times.ended is not None:
        yield Span(Kind.UNUSED, times.ended, times.job_ended, token)


def _work_spans(attempt: Attempt, times: Times, first_step: float, ended: float) -> Iterator[Span]:
    token = attempt.token
    program_ended = min(_first(times.program_ended, ended) or ended, ended)
    stopped = min(_first(times.stop_asked, program_ended) or program_ended, program_ended)
    is_at_work = times.ended is None
    # What was saved after the stop was done before it.
    has_kept_all = is_at_work or attempt.kind.settles
    saved = stopped if has_kept_all else min(max(times.saved or first_step, first_step), stopped)
    worked = [Span(Kind.USEFUL, first_step, saved, token), Span(Kind.LOST, saved, stopped, token)]
    worked = list(_stopped(worked, times.suspensions))
    worked = list(_with_tail(worked, Kind.USEFUL, Kind.SAVING, times.stall_seconds or 0.0))
    yield from _with_tail(worked, Kind.USEFUL, Kind.SUSPENDED, times.suspended_seconds or 0.0)
    has_saved_last = times.saved is not None and times.saved >= stopped
    last = Kind.SAVING if has_saved_last or has_kept_all else Kind.LOST
    yield Span(last, stopped, program_ended, token)
    yield Span(Kind.PUBLISHING, program_ended, ended, token)


def _stopped(spans: Iterable[Span], suspensions: Sequence[tuple[float, float]]) -> Iterator[Span]:
    """The spans that last, where each moment in which the job was stopped is that."""
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


def _with_tail(spans: Sequence[Span], of: Kind, becomes: Kind, seconds: float) -> Iterator[Span]:
    """The spans, where the last `seconds` of one kind become another; when exactly it was is not known."""
    found: list[Span] = []
    for span in reversed(spans):
        taken = min(seconds, span.end - span.begin) if span.kind is of else 0.0
        seconds -= taken
        if taken > 0:
            found.append(Span(becomes, span.end - taken, span.end, span.token))
        if span.end - taken > span.begin:
            found.append(Span(span.kind, span.begin, span.end - taken, span.token))
    yield from reversed(found)


def _by_old_line(attempt: Attempt) -> Work:
    """From before these times were kept: when it worked, and no more."""
    started, ended = unix_seconds(attempt.started_utc), unix_seconds(attempt.ended_utc)
    worked = max(min(attempt.work_seconds, ended - started), 0.0)
    kind = Kind.USEFUL if attempt.kind.settles or attempt.has_advanced else Kind.LOST
    spans = () if attempt.kind.is_before_work or not worked else (Span(kind, started, started + worked, attempt.token),)
    return Work(attempt, spans, started, ended, ended)


def _first(*moments: float | None) -> float | None:
    return next((moment for moment in moments if moment is not None), None)
