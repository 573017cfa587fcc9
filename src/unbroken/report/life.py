"""The life of a run as a picture needs it: spans of time by kind, and progress against time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from unbroken.accounting.kinds import Kind, Span
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.history import Attempt
from unbroken.runs.segment_end import EndKind
from unbroken.system.clock import unix_seconds

# Narrower ones cannot be seen.
SPANS = 400


def thinned_spans(spans: Sequence[Span], most: int = SPANS) -> list[Span]:
    """At most about twice so many spans that cover the same time: runs of short ones become one of their main kind.

    Kills are no spans, so none gets lost.
    """
    if len(spans) <= most:
        return list(spans)
    shortest = (spans[-1].end - spans[0].begin) / most
    return list(_joined(spans, shortest))


def _joined(spans: Iterable[Span], shortest: float) -> Iterator[Span]:
    together: list[Span] = []
    for span in spans:
        if span.end - span.begin >= shortest:
            yield from _as_one(together)
            together = []
            yield span
            continue
        together.append(span)
        if together[-1].end - together[0].begin >= shortest:
            yield from _as_one(together)
            together = []
    yield from _as_one(together)


def _as_one(spans: Sequence[Span]) -> Iterator[Span]:
    if not spans:
        return
    seconds: dict[Kind, float] = defaultdict(float)
    for span in spans:
        seconds[span.kind] += span.end - span.begin
    kind = max(seconds, key=lambda each: seconds[each])
    yield Span(kind, spans[0].begin, spans[-1].end, spans[-1].token)


def progress_points(
    attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint], now: float, done: float | None
) -> list[tuple[float, float]]:
    """Unix seconds and progress, in order: where attempts began and ended, where checkpoints were made, and now.

    What an attempt did behind its last checkpoint counts until the next one begins at that.
    """
    points = [(unix_seconds(each.passport.created_utc), each.passport.progress.done) for each in checkpoints]
    for attempt in attempts:
        if attempt.kind.is_before_work:
            continue
        points.append((_began(attempt), attempt.progress_from))
        points.append((_ended(attempt), attempt.progress_to))
    if done is not None and points:
        points.append((now, done))
    return sorted(set(points))


def _began(attempt: Attempt) -> float:
    return attempt.times.first_step or unix_seconds(attempt.started_utc)


def _ended(attempt: Attempt) -> float:
    """When it had done what counts: of one that was killed that is its last checkpoint."""
    last = attempt.times.saved if attempt.kind is EndKind.DIED else attempt.times.last_step
    return last or unix_seconds(attempt.ended_utc)
