"""Whether a segment still needs a job, also while other drivers submit and finish segments of the same run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from snakemake_executor_plugin_unbroken.records import is_record_of
from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.errors import LeaseError
from unbroken.runs import submissions
from unbroken.runs.record import read_record
from unbroken.runs.submissions import Submission
from unbroken.segment.already_done import settle


def is_done(segment: Segment, tell: Callable[[str], None]) -> bool:
    """True if the segment's work is done and its record stands, which is made now if need be.

    LeaseError if the work is done, the record is missing and a job holds the run, such as one that is just leaving.
    """
    try:
        return settle(segment.run, segment.number, tell) is not None
    except LeaseError:
        # Another driver's job may have gone on to a later segment long ago; it holds the run for hours.
        if is_record_of(segment):
            return True
        raise


def take(segment: Segment, after: Submission | None, tell: Callable[[str], None]) -> bool:
    """True if this driver, and no other, may submit the segment now, and the segment needs it.

    The driver of a job drops the job's ticket when the record is there.  Who looked for the record before that moment
    and for the ticket after it has seen neither, so the record is looked for once more with the new ticket in hand.
    FormatError if a newer unbroken wrote a record of the segment.
    """
    read_record(segment.record)
    if not submissions.take(segment.key, after):
        return False
    with suppress(LeaseError):  # held for long without a record: a job finds out by whom, and waits its turn
        if is_done(segment, tell):
            submissions.drop(segment.key)
            return False
    # Only a record that the new job leaves may end its wait.
    segment.record.unlink(missing_ok=True)
    return True
