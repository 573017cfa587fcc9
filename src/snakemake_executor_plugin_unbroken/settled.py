"""Whether a segment still needs a job, also while jobs of its run, or other drivers, do segments of it."""

from __future__ import annotations

from collections.abc import Callable

from snakemake_executor_plugin_unbroken.interruptible import Interruptible
from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.errors import LeaseError
from unbroken.runs import lease
from unbroken.runs.record import read_record
from unbroken.segment.already_done import settle, settled_record


def is_done(segment: Segment, log: Callable[[str], None]) -> bool:
    """Return True if the segment's work is done and its record stands, which is made now if need be.

    LeaseError if the work is done, the record is missing and a job holds the run, such as one that is just leaving.
    FormatError if a newer unbroken wrote the record, which stays as it is.
    """
    if isinstance(segment, Interruptible):
        return False
    read_record(segment.record)
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


def _remove_stale_record(segment: Segment, log: Callable[[str], None]) -> None:
    """Remove a record for which no work stands: a task would take the segment for done.

    Under the lease, so that no job publishes one in this moment; while a job holds the run, its record is younger than
    what was asked.
    """
    if not segment.record.exists():
        return
    try:
        with lease.take(segment.places.lease, segment.number, 0.0, log) as held:
            if settled_record(segment.run, segment.number, segment.places) is None:
                held.confirm()
                segment.record.unlink(missing_ok=True)
    except LeaseError:
        return
