"""Collect events of files that are processed together, and how the files were after all of them."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unbroken.engines.files.databases import LOG, database_of, is_beside
from unbroken.engines.files.states import Stamp, state_stamp_of
from unbroken.system.file_events import FileEvent, FileEvents, Happened, is_nobodys

# A program that writes without a pause is asked so often for a quiet moment in which lengths are exact.
MOST_ROUNDS = 50
# A write is reported so soon after it shows in the size of the file, if its process is not kept waiting meanwhile.
REPORTED_SECONDS = 0.005
# So long, at most, a moment without reports is waited for: what is written meanwhile costs an exact length.
QUIET_WITHIN_SECONDS = 2 * REPORTED_SECONDS
WRITTEN = Happened.WRITTEN | Happened.CREATED | Happened.CLOSED | Happened.MOVED_TO
COMPLETED = Happened.CLOSED | Happened.MOVED_TO
GONE = Happened.DELETED | Happened.MOVED_FROM


@dataclass
class Batch:
    """Hold events, and for each name the place of its last event of a kind among them."""

    events: list[FileEvent]
    sizes: dict[str, int | None] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)  # the time of the last write of each output
    stamps: dict[str, Stamp | None] = field(default_factory=dict)  # of states that were complete then
    written: dict[str, int] = field(default_factory=dict)  # the last write of each output
    grown: dict[str, int] = field(default_factory=dict)  # the last one that can change its length: no close
    last: dict[str, int] = field(default_factory=dict)  # the last event of each file
    logged: dict[str, int] = field(default_factory=dict)  # the last write to each write-ahead log
    commits: dict[str, Stamp] = field(default_factory=dict)  # of databases
    late: set[str] = field(default_factory=set)  # written again while sizes were read
    seen: set[str] = field(default_factory=set)  # written, and not settled by a moment yet
    at: int = 0  # the place of the event that is processed
    is_torn: bool = False  # events are missing
    is_quiet: bool = False  # nothing was reported for a while since sizes were read

    def doubtful(self) -> list[str]:
        """Return the outputs whose size may hold a write after a state that is not reported yet, by their times."""
        first = min((stamp[2] for stamp in self.stamps.values() if stamp is not None), default=None)
        return [] if first is None else [name for name, at in self.changed.items() if at >= first]

    def is_last(self, event: FileEvent) -> bool:
        """Return True if nothing else happened to the file after the event that is processed."""
        return self.last.get(event.name) == self.at


@dataclass(frozen=True)
class BatchReader:
    """Read batches; `is_suspect` names a state file that may turn out to be appended to, so its length is read too."""

    path_of: Callable[[str], Path]
    is_state: Callable[[str], bool]
    is_suspect: Callable[[str], bool]

    def gather(self, first: Sequence[FileEvent], events: FileEvents, unsettled: Iterable[str]) -> Batch:
        """Read sizes and stamps until nothing was reported since: they are those at the end of these events."""
        batch, more = Batch(list(first)), list(first)
        batch.seen = set(unsettled)
        for name in batch.seen:
            self._read_size(batch, name)
        until = 0.0
        for _ in range(MOST_ROUNDS):
            self._read(batch, more)
            more = events.next(0)
            if not more and batch.doubtful():
                until = until or time.monotonic() + QUIET_WITHIN_SECONDS
                more, batch.is_quiet = listen(events, until)
            if not more:
                break
            batch.events += more
        batch.late = {event.name for event in more if self._is_output_write(event)}
        for event in more:
            batch.stamps.pop(event.name, None)
        for at, event in enumerate(batch.events):
            self._place(batch, at, event)
        return batch

    def _place(self, batch: Batch, at: int, event: FileEvent) -> None:
        if self._is_output_write(event):
            batch.written[event.name] = at
            if event.what & ~Happened.CLOSED & WRITTEN:
                batch.grown[event.name] = at
        if event.what & (WRITTEN | GONE):
            batch.last[event.name] = at
        if event.what & Happened.WRITTEN and event.name.endswith(LOG):
            batch.logged[event.name] = at
        batch.is_torn |= bool(event.what & Happened.OVERFLOW)

    def _read(self, batch: Batch, events: Sequence[FileEvent]) -> None:
        for event in events:
            is_measured = self._is_output_write(event)
            if is_measured:
                self._read_size(batch, event.name)
            if self.is_state(event.name):
                batch.stamps[event.name] = self._complete_stamp(event)
            if is_beside(event.name, self.is_state):
                database = database_of(event.name)
                batch.stamps[database] = state_stamp_of(self.path_of(database))

    def _read_size(self, batch: Batch, name: str) -> None:
        batch.sizes[name], batch.changed[name] = self.size(name)

    def size(self, name: str) -> tuple[int | None, int]:
        """Return the size of a plain file and when it was changed; None for anything else."""
        try:
            found = os.lstat(self.path_of(name))
        except OSError:
            return None, 0
        return found.st_size if stat.S_ISREG(found.st_mode) else None, found.st_mtime_ns

    def _complete_stamp(self, event: FileEvent) -> Stamp | None:
        """Return the stamp of a state that this event may complete; None if a process has it open for writing.

        What was made before its folder was watched, or by a link, is reported as created and nothing more.
        """
        is_new = bool(event.what & Happened.CREATED)
        if not event.what & COMPLETED and not (is_new and is_nobodys(self.path_of(event.name))):
            return None
        return state_stamp_of(self.path_of(event.name))

    def _is_output_write(self, event: FileEvent) -> bool:
        if not event.name or event.what & Happened.IS_FOLDER or not event.what & WRITTEN:
            return False
        is_output = not self.is_state(event.name) and not is_beside(event.name, self.is_state)
        return is_output or self.is_suspect(event.name)


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
