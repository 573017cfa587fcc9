"""Find segments that need no job any more: their run is finished, or an earlier job did them and the record got lost.

The record is then made from the store, in milliseconds and without a job.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from unbroken.errors import FormatError, LeaseError
from unbroken.store import lease
from unbroken.store import results as final
from unbroken.store.checkpoint import Checkpoint, age_by_name
from unbroken.store.checkpoints import Store
from unbroken.store.history import Attempt, EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.store.record import Record, read_record
from unbroken.store.run import RunSpec
from unbroken.system.clock import utc_now


def is_done(run: RunSpec, segment: int) -> bool:
    """Return True if the segment's work is done and its record stands, which is made now if need be.  Never wait.

    A record for which no work stands is removed: a task would take the segment for done.  Both under the lease, so that
    no job publishes one in this moment; where the record stands, no lease is needed.  LeaseError if the work is done,
    the record is missing and a job holds the run, such as one that is just leaving; FormatError at a file of a newer
    unbroken.  Reads passports, not the files of checkpoints: the segment that resumes from one reads them all.
    """
    folder = RunFolder(run.name)
    path, expected = folder.record(segment), settled_record(run, segment, folder)
    if expected is not None and _is_right(expected, folder) and _is_newer_than_the_one_before(segment, folder):
        return True
    if expected is None and not path.exists():
        return False
    read_record(path)
    try:
        with lease.take(folder.lease, segment, 0.0) as held:
            record = settled_record(run, segment, folder)
            held.confirm()
            if record is not None:
                record.write(path)
            else:
                path.unlink(missing_ok=True)
            return record is not None
    except LeaseError:
        # A job may have gone on to a later segment long ago; it holds the run for hours.
        if expected is not None and not has_record(folder, segment):
            raise
        return expected is not None


def has_record(folder: RunFolder, segment: int) -> bool:
    """Return True if the record can be read and names this segment.

    Return True too if a newer unbroken wrote it, which was installed while this driver runs: the next job reads it, or
    says that it cannot.
    """
    try:
        return _own_record(folder, segment) is not None
    except FormatError:
        return True


def settle_rest(run: RunSpec, segments: Sequence[int], base: Path = Path()) -> bool:
    """Write the records of segments that a finished run has left over, under one lease; False if it is not finished.

    Never waits.  Raise LeaseError if a job still holds the run, such as one that is just leaving.
    """
    folder = RunFolder(run.name, base)
    with lease.take(folder.lease, segments[0], 0.0) as held:
        first = settled_record(run, segments[0], folder)
        if first is None or first.kind is not EndKind.FINISHED or first.has_worked:
            return False
        for segment in segments:
            held.confirm()
            replace(first, segment=segment).write(folder.record(segment))
    return True


def settled_record(run: RunSpec, segment: int, folder: RunFolder) -> Record | None:
    """Return what the record of a segment says that needs no job; None if it needs one.  Read only."""
    newest = next(reversed(Store(folder.checkpoints).readable()), None)
    kind = settled_kind(run, segment, newest, History(folder.history).attempts)
    # Results that are missing or of an earlier goal are made by the engine, so in a job.
    if newest is None or kind is None or (kind is EndKind.FINISHED and not final.is_current(folder, newest)):
        return None
    return record_of(run, segment, kind, newest)


def settled_kind(
    run: RunSpec, segment: int, newest: Checkpoint | None, attempts: Callable[[], Sequence[Attempt]]
) -> EndKind | None:
    """Return how a segment ended whose work is done, by the newest checkpoint and the history; None if it is not."""
    if newest is None:
        return None
    if is_finished(newest, run):
        return EndKind.FINISHED
    is_passed = newest.passport.segment > segment
    if is_passed or any(each.segment == segment and _stands(each, newest) for each in attempts()):
        return EndKind.PAUSED
    return None


def is_finished(checkpoint: Checkpoint | None, run: RunSpec | None) -> bool:
    """Return True if the checkpoint reached the goal as it is by now, raised or lowered; of an unknown run its own."""
    if checkpoint is None:
        return False
    passport = checkpoint.passport
    if run is None or not passport.is_finished:
        return passport.is_finished or (run is not None and run.is_past_goal(passport.progress))
    return run.is_content_with(passport.progress)


def record_of(run: RunSpec, segment: int, kind: EndKind, left: Checkpoint) -> Record:
    """Return the record of a segment that ended so; `left` is the checkpoint it left, or an earlier one at the goal."""
    has_worked = kind is EndKind.PAUSED or segment <= left.passport.segment
    return Record(run.name, segment, kind, has_worked, left.name, left.passport.progress, utc_now())


def _stands(attempt: Attempt, newest: Checkpoint) -> bool:
    """Return True if an attempt settled its segment and its work has not been lost to a bad checkpoint since."""
    left = attempt.to_checkpoint or attempt.from_checkpoint
    return attempt.kind.settles and left is not None and age_by_name(left)[0] <= newest.passport.sequence


def _own_record(folder: RunFolder, segment: int) -> Record | None:
    record = read_record(folder.record(segment))
    return record if record and (record.run, record.segment) == (folder.name, segment) else None


def _is_right(expected: Record, folder: RunFolder) -> bool:
    """Return True if the record is there and its work stands: it stays as it is.

    A task that ran ahead of Snakemake has left it, and the next one may hold the run.
    """
    try:
        found = _own_record(folder, expected.segment)
    except FormatError:  # of a newer unbroken, which was installed meanwhile
        return True
    if found is None:
        return False
    if found.kind is EndKind.PAUSED and age_by_name(found.checkpoint) < age_by_name(expected.checkpoint):
        return True  # later segments have gone on from it, perhaps to the goal
    return (found.kind, found.checkpoint) == (expected.kind, expected.checkpoint)


def _is_newer_than_the_one_before(segment: int, folder: RunFolder) -> bool:
    """Touch the record if it is older than the one before; return False if that fails, so it must be made again.

    Snakemake touches an output when it takes it, and calls a job failed whose input is newer than its output.
    """
    before, record = folder.record(segment - 1), folder.record(segment)
    try:
        if before.exists() and before.stat().st_mtime_ns > record.stat().st_mtime_ns:
            os.utime(record)
    except (PermissionError, FileNotFoundError):
        return False
    return True
