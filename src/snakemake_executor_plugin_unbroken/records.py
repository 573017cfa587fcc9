"""Looks for records: one listing of a folder for each run that has a job out."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from snakemake_executor_plugin_unbroken.segments import Out, Segment

# At most this share of the time goes into looking, however many runs there are and however slow the file server is.
LOOKING_SHARE = 0.05
# Near the end of a segment the next one waits for each look.
NEAR_SECONDS = 0.2
# Of more jobs than this that have given no sign of life yet, each look takes its share only: they wait in the queue,
# and their leases, which are looked at every few seconds, tell when they have begun.
QUIET_AT_ONCE = 100
TURNS = 5
# By so much a segment may end before its minutes are over.
EARLY_SECONDS = 60.0


class Records:
    """Which segments have left their record."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.interval_seconds = seconds
        self._listed: dict[str, frozenset[str]] = {}
        self._turn = 0

    def due(self, outs: Iterable[Out]) -> list[Segment]:
        """Those to look for now; each of the others within the next looks."""
        heard: list[Segment] = []
        quiet: list[Segment] = []
        for out in outs:
            (quiet if out.first_heard is None else heard).append(out.segment)
        if len(quiet) > QUIET_AT_ONCE:
            self._turn = (self._turn + 1) % TURNS
            quiet = quiet[self._turn :: TURNS]
        return heard + quiet

    def arrived(self, segments: Iterable[Segment], is_near_end: bool = False) -> set[Segment]:
        """Those of `segments` whose record is there; where one is near its end, the next look is soon.

        A folder is listed, not each file asked for: on NFS opening a folder asks the server, while a file that was
        missing a moment ago may stay missing for a client for a minute.
        """
        began = time.monotonic()
        listed: dict[str, frozenset[str]] = {}
        found = set()
        for segment in segments:
            folder, name = segment.record_place
            if folder not in listed:
                listed[folder] = _names(folder)
            if name in listed[folder] and segment.has_record():
                found.add(segment)
        self._listed = listed
        seconds = min(self._seconds, NEAR_SECONDS) if is_near_end else self._seconds
        self.interval_seconds = max(seconds, (time.monotonic() - began) / LOOKING_SHARE)
        return found

    def vanished(self, done: Iterable[Segment]) -> list[Segment]:
        """Those of `done` whose record was there and is not any more, as far as `arrived` has just looked.

        The Snakemake inside a job removes the record again if it is told to leave in its very last second.
        """
        placed = ((segment, *segment.record_place) for segment in done)
        return [
            segment for segment, folder, name in placed if folder in self._listed and name not in self._listed[folder]
        ]


def is_near_end(outs: Iterable[Out]) -> bool:
    """True if a segment has nearly had its minutes, counted from its first sign of life as seen from here."""
    now = time.monotonic()
    return any(
        out.first_heard is not None and now - out.first_heard > out.segment.run.segment_minutes * 60 - EARLY_SECONDS
        for out in outs
    )


def _names(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:  # not made yet, or the file server is away for a moment
        return frozenset()
