"""Looks for records: one listing of a folder for each run that has a job out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.runs.record import read_record

# At most this share of the time goes into looking, however many runs there are and however slow the file server is.
LOOKING_SHARE = 0.05


class Records:
    """Which segments have left their record."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.interval_seconds = seconds
        self._listed: dict[Path, frozenset[str]] = {}

    def arrived(self, segments: Iterable[Segment]) -> set[Segment]:
        """Those of `segments` whose record is there.

        A folder is listed, not each file asked for: on NFS opening a folder asks the server, while a file that was
        missing a moment ago may stay missing for a client for a minute.
        """
        began = time.monotonic()
        listed: dict[Path, frozenset[str]] = {}
        found = set()
        for segment in segments:
            folder = segment.places.segments
            if folder not in listed:
                listed[folder] = _names(folder)
            if segment.record.name in listed[folder] and is_record_of(segment):
                found.add(segment)
        self._listed = listed
        self.interval_seconds = max(self._seconds, (time.monotonic() - began) / LOOKING_SHARE)
        return found

    def vanished(self, done: Iterable[Segment]) -> list[Segment]:
        """Those of `done` whose record was there and is not any more, as far as `arrived` has just looked.

        The Snakemake inside a job removes the record again if it is told to leave in its very last second.
        """
        return [
            segment
            for segment in done
            if (names := self._listed.get(segment.places.segments)) is not None and segment.record.name not in names
        ]


def is_record_of(segment: Segment) -> bool:
    """True if the record can be read and names this segment."""
    record = read_record(segment.record)
    return record is not None and (record.run, record.segment) == (segment.run.name, segment.number)


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:  # not made yet, or the file server is away for a moment
        return frozenset()
