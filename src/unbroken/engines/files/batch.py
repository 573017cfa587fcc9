"""Collect events of files that are processed together, and how the files were after all of them."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unbroken.engines.files.databases import LOG, database_of
from unbroken.engines.files.states import Stamp, state_stamp_of
from unbroken.system.file_events import FileEvent, FileEvents, Happened

# A program that writes without a pause is asked so often for a quiet moment in which lengths are exact.
MOST_ROUNDS = 50
# A write is reported so soon after it shows in the size of the file, if its process is not kept waiting meanwhile.
REPORTED_SECONDS = 0.005
# So long, at most, a moment without reports is waited for: what is written meanwhile costs an exact length.
QUIET_WITHIN_SECONDS = 2 * REPORTED_SECONDS
GROWN = Happened.WRITTEN | Happened.CREATED | Happened.MOVED_TO  # what can change a length
COMPLETED = Happened.CLOSED | Happened.MOVED_TO
GONE = Happened.DELETED | Happened.MOVED_FROM


@dataclass
class Batch:
    """Hold events, and how the files were at their end; a place is that of an event among them."""

    unsettled: set[str] = field(default_factory=set)  # written before, and their lengths then are not known
    events: list[FileEvent] = field(default_factory=list)
    sizes: dict[str, int | None] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)  # when each was written last, in nanoseconds
    stamps: dict[str, Stamp | None] = field(default_factory=dict)  # of states that may be complete
    grown: dict[str, tuple[int, int]] = field(default_factory=dict)  # the first and last change of a length
    last: dict[str, int] = field(default_factory=dict)  # the last event of each file
    late: set[str] = field(default_factory=set)  # written again while sizes were read
    at: int = 0  # the place of the event that is processed
    is_quiet: bool = False  # nothing was reported for a while since sizes were read
    shared: tuple[dict[str, int | None], frozenset[str], dict[str, int]] | None = None  # lengths of a moment

    @property
    def is_torn(self) -> bool:
        """Return True if events are missing."""
        return "" in self.last

    def doubtful(self) -> list[str]:
        """Return the files whose size may hold a write after a state that is not reported yet, by their times."""
        complete = {name: stamp for name, stamp in self.stamps.items() if stamp is not None}
        first = min((stamp[2] for stamp in complete.values()), default=None)
        return [name for name, at in self.changed.items() if first is not None and at >= first and name not in complete]

    def is_last(self, event: FileEvent) -> bool:
        """Return True if nothing else happened to the file after the event that is processed."""
        return self.last.get(event.name) == self.at

    def place(self, late: Sequence[FileEvent]) -> None:
        """Note where files are changed; `late` are events after these."""
        self.late = {event.name for event in late if event.what & (GROWN | GONE)}
        for name in [event.name for event in late]:
            self.stamps.pop(name, None)
        for at, event in enumerate(self.events):
            self.last[event.name] = at
            if event.what & (GROWN | GONE):
                first, _ = self.grown.get(event.name, (-1 if event.name in self.unsettled else at, at))
                self.grown[event.name] = first, at
        self.grown = {name: places for name, places in self.grown.items() if self.stamps.get(name) is None}

    def lengths_at(self, stamp: Stamp, *, is_found: bool) -> tuple[dict[str, int | None], frozenset[str]]:
        """Return the lengths of what was written before a state of that stamp is complete, and of what it is unknown.

        One that is only found was completed at some time since its folder was made.
        """
        known, unknown = dict[str, int | None](), set[str]()
        for name, (first, last) in self.grown.items():
            # A write of the same tick of the clock may be one after the state, in the size and not yet reported.
            is_doubtful = name in self.late or (not self.is_quiet and self.changed.get(name, 0) >= stamp[2])
            is_before = is_found and self.changed.get(name, 0) < stamp[2]  # the clock says it
            if (last < self.at or is_before) and not is_doubtful:
                known[name] = self.sizes.get(name)
            elif first < self.at or is_found:
                unknown.add(name)
        return known, frozenset(unknown)


@dataclass
class BatchReader:
    """Read batches; `written` says which of some files the program has open for writing.

    A write to the log of a database comes under the name of the database; `databases` are those that had a journal.
    """

    path_of: Callable[[str], Path]
    is_state: Callable[[str], bool]
    written: Callable[[Sequence[Path]], set[Path]]
    databases: set[str] = field(default_factory=set)

    def gather(self, first: Sequence[FileEvent], events: FileEvents, unsettled: Iterable[str]) -> Batch:
        """Read sizes and stamps until nothing was reported since: they are those at the end of these events."""
        batch, more, until = Batch(set(unsettled)), first, 0.0
        for _ in range(MOST_ROUNDS):
            found = self._translated(more)
            batch.events += found
            self._read(batch, found)
            more = events.next(0)
            if not more and batch.doubtful():
                until = until or time.monotonic() + QUIET_WITHIN_SECONDS
                more, batch.is_quiet = listen(events, until)
            if not more:
                break
        events.put_back(more)
        batch.place(self._translated(more))
        return batch

    def _translated(self, events: Sequence[FileEvent]) -> list[FileEvent]:
        """Return the events; of databases only the writes to them and to their logs: who reads one closes them too."""
        found = []
        for event in events:
            database = database_of(event.name)
            if database and self.is_state(database):
                self.databases.add(database)
                if event.name.endswith(LOG) and event.what & Happened.WRITTEN:
                    found.append(FileEvent(Happened.WRITTEN, database, 0))
            elif event.name not in self.databases or not event.what & Happened.CLOSED:
                found.append(event)
        return found

    def _read(self, batch: Batch, events: Sequence[FileEvent]) -> None:
        """Read what these events have changed, each file once."""
        whats = {event.name: event.what for event in events if event.name}
        found = [self.path_of(name) for name, what in whats.items() if what & Happened.FOUND and self.is_state(name)]
        busy = self.written(found) if found else set()
        for name, what in whats.items():
            if not what & Happened.IS_FOLDER:
                batch.sizes[name], batch.changed[name] = self.size(name)
            if self.is_state(name):
                is_commit = name in self.databases and what & Happened.WRITTEN
                may_be = what & COMPLETED or is_commit or (what & Happened.FOUND and self.path_of(name) not in busy)
                batch.stamps[name] = state_stamp_of(self.path_of(name)) if may_be else None

    def size(self, name: str) -> tuple[int | None, int]:
        """Return the size of a plain file and when it was changed; None for anything else."""
        try:
            found = os.lstat(self.path_of(name))
        except OSError:
            return None, 0
        return found.st_size if stat.S_ISREG(found.st_mode) else None, found.st_mtime_ns


def listen(events: FileEvents, until: float) -> tuple[list[FileEvent], bool]:
    """Wait for what is not reported yet, and return it; and True if nothing was for long enough.

    A write shows in the size a moment before it is reported.
    """
    began = time.monotonic()
    ends = min(began + REPORTED_SECONDS, until)
    while True:
        found = events.next(ends - time.monotonic())  # empty also if another thread has woken it
        now = time.monotonic()
        if found or now >= ends:
            return found, not found and now - began >= REPORTED_SECONDS
