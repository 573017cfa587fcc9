"""A segment that needs no job: its run is finished, or an earlier job did it and its record got lost.

The driver makes the record from the store then, in milliseconds and without a job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from unbroken.runs import lease
from unbroken.runs import results as final
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.history import Attempt, History
from unbroken.runs.layout import RunFolder
from unbroken.runs.record import Record
from unbroken.runs.run import Run
from unbroken.runs.segment_end import EndKind
from unbroken.runs.store import Store
from unbroken.segment.classify import is_finished
from unbroken.system.clock import utc_now


def settle(run: Run, segment: int, tell: Callable[[str], None], base: Path = Path()) -> Record | None:
    """The record of a segment whose work is done, written; None if it needs a job.  Never waits.

    LeaseError if the work is done but a job still holds the run, such as one that is just leaving.  Reads passports,
    not the files of checkpoints: the segment that goes on from one reads them all.
    """
    places = RunFolder(run.name, base)
    if settled_record(run, segment, places) is None:
        return None
    with lease.take(places.lease, segment, 0.0, tell) as held:
        record = settled_record(run, segment, places)
        if record is not None:
            held.confirm()
            record.write(places.record(segment))
    return record


def settle_rest(run: Run, segments: Sequence[int], tell: Callable[[str], None], base: Path = Path()) -> bool:
    """Writes the records of segments that a finished run has left over, under one lease; False if it is not finished.

    Never waits.  LeaseError if a job still holds the run, such as one that is just leaving.
    """
    places = RunFolder(run.name, base)
    with lease.take(places.lease, segments[0], 0.0, tell) as held:
        first = settled_record(run, segments[0], places)
        if first is None or first.kind is not EndKind.FINISHED or first.has_worked:
            return False
        for segment in segments:
            held.confirm()
            replace(first, segment=segment).write(places.record(segment))
    return True


def settled_record(run: Run, segment: int, places: RunFolder) -> Record | None:
    """What the record of a segment says that needs no job; None if it needs one.  Reads only."""
    newest = next(reversed(Store(places.checkpoints).readable()), None)
    if newest is None:
        return None
    if is_finished(newest, run):
        # Results that are missing or of an earlier goal are made by the engine, so in a job.
        has_final = final.is_current(places, newest)
        has_worked = segment <= newest.passport.segment
        return _record(run, segment, EndKind.FINISHED, newest, has_worked) if has_final else None
    if newest.passport.segment > segment or is_already_done(History(places.history).attempts(), segment, newest):
        return _record(run, segment, EndKind.PAUSED, newest, has_worked=True)
    return None


def is_already_done(attempts: Sequence[Attempt], segment: int, newest: Checkpoint) -> bool:
    """True if an attempt settled the segment and its work has not been lost to a bad checkpoint since."""
    return any(attempt.segment == segment and _stands(attempt, newest) for attempt in attempts)


def _stands(attempt: Attempt, newest: Checkpoint) -> bool:
    left = attempt.to_checkpoint or attempt.from_checkpoint
    if not attempt.kind.settles or left is None:
        return False
    return int(left.partition("_")[0]) <= newest.passport.sequence


def _record(run: Run, segment: int, kind: EndKind, newest: Checkpoint, has_worked: bool) -> Record:
    return Record(run.name, segment, kind, has_worked, newest.name, newest.passport.progress, utc_now())
