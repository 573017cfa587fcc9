"""Whether a segment still needs a job: for a driver, while jobs of its run, or other drivers, do segments of it."""

from __future__ import annotations

import os
from collections.abc import Callable

from unbroken.errors import FormatError, LeaseError
from unbroken.runs import lease
from unbroken.runs.checkpoint import age_by_name
from unbroken.runs.layout import RunFolder
from unbroken.runs.record import Record, read_record
from unbroken.runs.run import Run
from unbroken.runs.segment_end import EndKind
from unbroken.segment.already_done import settle, settled_record


def is_done(run: Run, segment: int, log: Callable[[str], None]) -> bool:
    """Return True if the segment's work is done and its record stands, which is made now if need be.

    LeaseError if the work is done, the record is missing and a job holds the run, such as one that is just leaving.
    """
    folder = RunFolder(run.name)
    if _has_right_record(run, segment, folder) and _is_newer_than_the_one_before(segment, folder):
        return True
    try:
        if settle(run, segment, log) is not None:
            return True
    except LeaseError:
        # A job may have gone on to a later segment long ago; it holds the run for hours.
        if has_record(folder, segment):
            return True
        raise
    _remove_stale_record(run, segment, folder, log)
    return False


def has_record(folder: RunFolder, segment: int) -> bool:
    """Return True if the record can be read and names this segment.

    Also if a newer unbroken wrote it, which was installed while this driver is at work: the next job reads it, or says
    that it cannot.
    """
    try:
        record = read_record(folder.record(segment))
    except FormatError:
        return True
    return record is not None and _is_of(record, folder, segment)


def _is_of(record: Record, folder: RunFolder, segment: int) -> bool:
    return (record.run, record.segment) == (folder.name, segment)


def _has_right_record(run: Run, segment: int, folder: RunFolder) -> bool:
    """Return True if the record is there and its work stands: it stays as it is, and no lease is needed.

    A task that ran ahead of Snakemake has left it, and the next one may hold the run.
    """
    if not folder.record(segment).exists():
        return False
    expected = settled_record(run, segment, folder)
    try:
        found = read_record(folder.record(segment))
    except FormatError:  # of a newer unbroken, which was installed meanwhile
        return expected is not None
    if found is None or expected is None or not _is_of(found, folder, segment):
        return False
    if found.kind is EndKind.PAUSED and age_by_name(found.checkpoint) < age_by_name(expected.checkpoint):
        return True  # later segments have gone on from it, perhaps to the goal
    return (found.kind, found.checkpoint) == (expected.kind, expected.checkpoint)


def _is_newer_than_the_one_before(segment: int, folder: RunFolder) -> bool:
    """Let the record be so; return False if it is another user's, and has to be made again for that.

    Snakemake touches an output when it takes it, and calls a job failed whose input is newer than its output.
    """
    before, record = folder.record(segment - 1), folder.record(segment)
    try:
        if before.exists() and before.stat().st_mtime_ns > record.stat().st_mtime_ns:
            os.utime(record)
    except (PermissionError, FileNotFoundError):
        return False
    return True


def _remove_stale_record(run: Run, segment: int, folder: RunFolder, log: Callable[[str], None]) -> None:
    """Remove a record for which no work stands: a task would take the segment for done.

    Under the lease, so that no job publishes one in this moment; while a job holds the run, its record is younger than
    what was asked.  FormatError if a newer unbroken wrote it.
    """
    record = folder.record(segment)
    if not record.exists():
        return
    read_record(record)
    try:
        with lease.take(folder.lease, segment, 0.0, log) as held:
            if settled_record(run, segment, folder) is None:
                held.confirm()
                record.unlink(missing_ok=True)
    except LeaseError:
        return
