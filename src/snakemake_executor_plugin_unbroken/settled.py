"""Whether a segment still needs a job, also while jobs of its run, or other drivers, do segments of it."""

from __future__ import annotations

import os
from collections.abc import Callable

from snakemake_executor_plugin_unbroken.interruptible import Interruptible
from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.errors import FormatError, LeaseError
from unbroken.runs import lease
from unbroken.runs.checkpoint import age_by_name
from unbroken.runs.record import read_record
from unbroken.runs.segment_end import EndKind
from unbroken.segment.already_done import settle, settled_record


def is_done(segment: Segment, log: Callable[[str], None]) -> bool:
    """Return True if the segment's work is done and its record stands, which is made now if need be.

    LeaseError if the work is done, the record is missing and a job holds the run, such as one that is just leaving.
    """
    if isinstance(segment, Interruptible):
        return False
    if _has_right_record(segment) and _is_newer_than_the_one_before(segment):
        return True
    try:
        if settle(segment.run, segment.number, log) is not None:
            return True
    except LeaseError:
        # A job may have gone on to a later segment long ago; it holds the run for hours.
        if segment.has_record():
            return True
        raise
    _remove_stale_record(segment, log)
    return False


def _has_right_record(segment: Segment) -> bool:
    """Return True if the record is there and its work stands: it stays as it is, and no lease is needed.

    A task that ran ahead of Snakemake has left it, and the next one may hold the run.
    """
    if not segment.record.exists():
        return False
    expected = settled_record(segment.run, segment.number, segment.places)
    try:
        found = read_record(segment.record)
    except FormatError:  # of a newer unbroken, which was installed meanwhile
        return expected is not None
    if found is None or expected is None or (found.run, found.segment) != (segment.run.name, segment.number):
        return False
    if found.kind is EndKind.PAUSED and age_by_name(found.checkpoint) < age_by_name(expected.checkpoint):
        return True  # later segments have gone on from it, perhaps to the goal
    return (found.kind, found.checkpoint) == (expected.kind, expected.checkpoint)


def _is_newer_than_the_one_before(segment: Segment) -> bool:
    """Let the record be so; return False if it is another user's, and has to be made again for that.

    Snakemake touches an output when it takes it, and calls a job failed whose input is newer than its output.
    """
    before = segment.places.record(segment.number - 1)
    try:
        if before.exists() and before.stat().st_mtime_ns > segment.record.stat().st_mtime_ns:
            os.utime(segment.record)
    except (PermissionError, FileNotFoundError):
        return False
    return True


def _remove_stale_record(segment: Segment, log: Callable[[str], None]) -> None:
    """Remove a record for which no work stands: a task would take the segment for done.

    Under the lease, so that no job publishes one in this moment; while a job holds the run, its record is younger than
    what was asked.  FormatError if a newer unbroken wrote it.
    """
    if not segment.record.exists():
        return
    read_record(segment.record)
    try:
        with lease.take(segment.places.lease, segment.number, 0.0, log) as held:
            if settled_record(segment.run, segment.number, segment.places) is None:
                held.confirm()
                segment.record.unlink(missing_ok=True)
    except LeaseError:
        return
