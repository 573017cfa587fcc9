"""Learn from the events of a program's files: which states are complete, and how long each other file was then.

The kernel reports events in their order, so the length that a growing file had when a state was written is known,
although it is read a moment later: it is the length read before, if no write was reported in between; or the length
read now, if no write was reported since.  Where a write was reported on both sides, the length is unknown and that
moment is not used.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unbroken.engines.files.batch import COMPLETED, GONE, Batch, BatchReader
from unbroken.engines.files.databases import JOURNAL, LOG, database_of, is_beside, is_database
from unbroken.engines.files.moments import Moment
from unbroken.engines.files.states import ELSEWHERE, Stamp, state_stamp_of
from unbroken.engines.files.writers import ProgramLife
from unbroken.system import fs
from unbroken.system.file_events import FileEvent, Happened, is_nobodys

# An open file is being appended to if it was written for this long, while this many states were completed.
APPENDED_SECONDS = 1.0
APPENDED_STATES = 2
# A program that replaces its state again and again is copied from a file that was held open for a moment.
MOST_PAST, MOST_PAST_LENGTHS = 256, 1000
# An output that was written again so often, and did not grow, is no file that is appended to.
REWRITES = 2


class FileKnowledge:
    """Learn from batches of events.

    `is_state` says which names are state files, `also` what is watched elsewhere, by the names that its events have.
    `is_measured` names files whose lengths must be known.  `life` knows the program's processes: a file that was closed
    by the end of one is not complete.
    """

    def __init__(
        self,
        root: Path,
        is_state: Callable[[str], bool],
        also: Mapping[str, Path],
        is_measured: Callable[[str], bool],
        life: ProgramLife | None,
    ) -> None:
        self._root, self._matches, self._also = root, is_state, also
        self._is_measured, self._life = is_measured, life
        self._reader = BatchReader(self._path, self._is_state, self._is_suspect)
        self._lock = threading.Lock()
        # Outputs.
        self._lengths: dict[str, int] = {}
        self._shared: Mapping[str, int] | None = None  # a copy of `_lengths`, as long as that stays as it is
        self._unsettled: set[str] = set()  # their length in `_lengths` is not that of the last event
        self._doubtful: dict[str, tuple[int, list[Moment]]] = {}  # sizes that may hold a write that is reported later
        self._closed: dict[str, int] = {}  # the length of each output when it was last closed, or replaced
        self._rewrites: Counter[str] = Counter()
        # All files.
        self._open: set[str] = set()  # written since they were last closed
        self._changed: set[str] = set()  # written at all
        # State files.
        self.moments: dict[str, Moment] = {}  # the last one of each
        self.taken: dict[str, Moment] = {}  # of states that were handed over
        self._fresh: dict[str, Moment] = {}  # it may be the end of the program that has closed the file
        self._trusted_from: dict[str, float] = {}  # of these, time.monotonic()
        self._past: dict[tuple[str, Stamp], Moment] = {}  # the last ones of files that are replaced by a rename
        self._completions: Counter[str] = Counter()  # closed after writing, or put in place by a rename
        self._moved: set[str] = set()
        self._in_place: set[str] = set()  # written under their own name
        self._committed: set[str] = set()  # databases
        self._opened: dict[str, tuple[float, int]] = {}  # when a file was first written, and how many states were then
        self._states = 0  # how many were completed
        self.appended: set[str] = set()  # that match as state files, and are kept open and appended to
        self.overflows = 0

    # --- what was learned ---

    def moment_of(self, stamps: Mapping[str, Stamp]) -> Moment | None:
        """Return the moment at which the last of these state files was completed; None if one changed since."""
        with self._lock:
            if len(stamps) == 1 and (past := self._past.get(next(iter(stamps.items())))) is not None:
                return past  # of a file that is held open, and was replaced since
            found = [each for name in stamps if (each := self.moments.get(name)) is not None]
            is_changed = any(stamps[each.name] != each.stamp for each in found)
            if len(found) < len(stamps) or is_changed or self._open.intersection(stamps) - self._committed:
                return None
            return max(found, key=lambda each: each.at, default=None)

    def is_renamed(self, name: str) -> bool:
        """Return True if the file was always put in place by a rename, and never written under its name."""
        return name in self._moved and name not in self._in_place

    def is_written_in_place(self, name: str) -> bool:
        """Return True if the file was written under its own name."""
        return name in self._in_place

    def is_open(self, name: str) -> bool:
        """Return True if the file was written since it was last closed."""
        return name in self._open

    def is_rewritten(self, name: str) -> bool:
        """Return True for an output that was more than once written from its beginning again, or replaced."""
        return self._rewrites[name] >= REWRITES

    def suspects(self) -> set[str]:
        """Return state files that may turn out to be appended to: no event has completed them, and they are open."""
        with self._lock:
            return set(self._opened)

    def completions(self, name: str) -> int:
        """Return how often the file was closed after writing, or put in place by a rename."""
        return self._completions[name]

    def written(self) -> set[str]:
        """Return the names of all files that were written, states included."""
        with self._lock:
            return set(self._changed)

    def trust(self) -> None:
        """Take what was closed last: the program has left well, and was not ended while it wrote."""
        with self._lock:
            self.moments |= self._fresh
            self._remember(self._fresh.values())
            self._fresh = {}

    # --- batches ---

    def _learn(self, batch: Batch) -> tuple[list[Moment], list[Moment]]:
        """Return the moments that a batch makes, and earlier ones that it makes doubtful."""
        moments: list[Moment] = []
        with self._lock:
            for at, event in enumerate(batch.events):
                batch.at = at
                moments += self._take_event(event, batch)
            self._unsettled = batch.late | (set(self._lengths) if batch.is_torn else set())
            for name, size in batch.sizes.items():
                if size is None or name not in batch.late:
                    self._set_length(name, size)
            moments = [] if batch.is_torn else moments
            late = self._late_doubts(batch)
            self._doubtful |= {name: (self._lengths.get(name, 0), moments) for name in batch.doubtful() if moments}
            self._states += len(moments)
            self._find_appended()
        return moments, late

    def _trusted(self, moments: Sequence[Moment]) -> list[Moment]:
        """Return the moments of files that were put in place by a rename, and others if the program still works now.

        Where the end of a process may have closed a file, only if the program still works some seconds later.
        """
        with self._lock:
            self._fresh |= {moment.name: moment for moment in moments}
            is_alive = bool(self._fresh) and self._is_alive()
            now = time.monotonic()
            for moment in moments:
                self._trusted_from[moment.name] = now + self._doubt_seconds(moment)
            taken = [
                each
                for each in self._fresh.values()
                if (is_alive and now >= self._trusted_from[each.name]) or self.is_renamed(each.name)
            ]
            for moment in taken:
                del self._fresh[moment.name], self._trusted_from[moment.name]
                self.moments[moment.name] = moment
            self._remember(taken)
        return taken

    def _doubt_seconds(self, moment: Moment) -> float:
        is_first = self._completions[moment.name] < 2
        return 0 if self._life is None else self._life.doubt_seconds(moment.stamp[1], is_first=is_first)

    def _is_alive(self) -> bool:
        """Look at the program; True also where nothing is known of its processes."""
        return self._life is None or self._life.is_alive()

    def _remember(self, moments: Iterable[Moment]) -> None:
        """Keep the last moments of files that are always replaced, while their lengths take little memory."""
        for moment in moments:
            if self.is_renamed(moment.name) and len(moment.lengths) <= MOST_PAST_LENGTHS:
                self._past.pop((moment.name, moment.stamp), None)
                self._past[moment.name, moment.stamp] = moment
        _limit(self._past)

    def _take_event(self, event: FileEvent, batch: Batch) -> list[Moment]:
        """Return the moments that an event makes."""
        if event.what & Happened.OVERFLOW:
            self.overflows += 1
            self._forget_all()
            self._open.clear()
            batch.seen.update(self._lengths)
            return []
        if event.what & Happened.IS_FOLDER and not self._is_state(event.name):
            return self._follow_folder(event, batch)
        if self._is_state(event.name):
            return self._state_event(event, batch)
        if is_beside(event.name, self._is_state):
            return self._commit(event, batch)
        self._output_event(event, batch)
        return []

    def _late_doubts(self, batch: Batch) -> list[Moment]:
        """Blur the moments whose lengths had a write that was reported only now: it did not change the size."""
        found: list[Moment] = []
        for name in batch.written.keys() & self._doubtful.keys():
            size, moments = self._doubtful.pop(name)
            is_doubted = self._is_measured(name) and not self._is_state(name) and not self.is_rewritten(name)
            if batch.sizes.get(name) == size and is_doubted:
                found += [replace(moment, blurred=name, is_late_doubt=True) for moment in moments if not moment.blurred]
        self._remember(found)
        found = [moment for moment in found if self.moments.get(moment.name, moment).stamp == moment.stamp]
        self.moments |= {moment.name: moment for moment in found if moment.name in self.moments}
        self._fresh |= {moment.name: moment for moment in found if moment.name in self._fresh}
        return [moment for moment in found if moment.name in self.moments]

    # --- outputs ---

    def _output_event(self, event: FileEvent, batch: Batch) -> None:
        name = event.name
        if event.what & GONE:
            self._set_length(name, None)
            self._open.discard(name)
            batch.seen.discard(name)
            return
        batch.seen.add(name)
        self._changed.add(name)
        if batch.written[name] == batch.at:
            self._note_rewritten(event, batch.sizes.get(name))
        self._note_open(event)
        if event.what & Happened.CREATED and batch.is_last(event) and not is_nobodys(self._path(name)):
            self._open.add(name)  # though nothing is written yet

    def _note_rewritten(self, event: FileEvent, size: int | None) -> None:
        """Count how often a file was replaced, or closed no longer than before although it was written."""
        is_moved = bool(event.what & Happened.MOVED_TO)
        if size is None or not (is_moved or (event.what & Happened.CLOSED and event.name in self._open)):
            return
        before = self._closed.get(event.name)
        if before is not None and (is_moved or size <= before):
            self._rewrites[event.name] += 1
        self._closed[event.name] = size

    def _set_length(self, name: str, size: int | None) -> None:
        if self._lengths.get(name) == size:
            return
        self._shared = None
        if size is None:
            self._lengths.pop(name, None)
        else:
            self._lengths[name] = size

    def _note_open(self, event: FileEvent) -> None:
        if event.what & COMPLETED:
            self._open.discard(event.name)
        elif event.what & Happened.WRITTEN:
            self._open.add(event.name)

    # --- state files ---

    def _is_state(self, name: str) -> bool:
        return name not in self.appended and self._matches(name) and not is_beside(name, self._matches)

    def _is_suspect(self, name: str) -> bool:
        """Return True for what matches as a state file, and may turn out to be appended to."""
        return name in self._opened and not self._completions[name]

    def _path(self, name: str) -> Path:
        first, _, rest = name.partition("/")
        return self._also[first] / rest if first in self._also else self._root / name

    def _state_event(self, event: FileEvent, batch: Batch) -> list[Moment]:
        name = event.name
        if event.what & GONE:
            if name in self.moments and name.startswith(ELSEWHERE):  # handed over, and taken away by us
                self.taken[name] = self.moments[name]
                _limit(self.taken)
            self._forget(name)
            self._open.discard(name)
            return []
        self._changed.add(name)
        self._completions[name] += bool(event.what & COMPLETED)
        if event.what & Happened.MOVED_TO:
            self._moved.add(name)
        if event.what & Happened.WRITTEN:
            self._in_place.add(name)
            if name not in self._open:
                self._is_alive()  # a writer is known before its end closes the file
            if not event.what & COMPLETED:
                self._opened.setdefault(name, (time.monotonic(), self._states))
                batch.seen.add(name)
        self._note_open(event)
        if not event.what & COMPLETED:
            self._forget(name)
        stamp = batch.stamps.get(name) if batch.is_last(event) else None
        if stamp is None:
            return []
        if not event.what & COMPLETED:  # it was completed at some time since its folder was made
            batch.seen |= {each for each, at in batch.written.items() if at > batch.at}
        batch.seen.discard(name)
        self._set_length(name, None)  # taken when it was written, in case that it is appended to
        return [self._moment(name, stamp, batch)]

    def _commit(self, event: FileEvent, batch: Batch) -> list[Moment]:
        """Return the moment at which a database that is kept open was committed, by an event of its journal.

        That is the first one after the database was written, or the last write to a write-ahead log: who only reads
        the database closes that too.
        """
        name = database_of(event.name)
        stamp = batch.stamps.get(name)
        if event.name.endswith(LOG):
            is_commit = batch.logged.get(event.name) == batch.at
        else:
            known = self._fresh.get(name) or self.moments.get(name)
            is_new = stamp not in (batch.commits.get(name), known and known.stamp)
            is_commit = event.name.endswith(JOURNAL) and batch.last.get(name, -1) < batch.at and is_new
        if stamp is None or not is_commit:
            return []
        self._committed.add(name)
        batch.commits[name] = stamp
        return [self._moment(name, stamp, batch)]

    def _moment(self, name: str, stamp: Stamp, batch: Batch) -> Moment:
        unknown = set()
        for each in list(batch.seen):
            # A write of the same tick of the clock may be one after the state, in the size and not yet reported.
            is_doubtful = not batch.is_quiet and batch.changed.get(each, 0) >= stamp[2]
            if batch.grown.get(each, -1) > batch.at or each in batch.late or is_doubtful:
                unknown.add(each)
            else:
                batch.seen.discard(each)
                if (size := batch.sizes.get(each, self._lengths.get(each))) is not None:
                    self._set_length(each, size)
        self._shared = self._shared or dict(self._lengths)
        blurred = next((each for each in sorted(unknown) if self._is_measured(each) and not self._is_state(each)), "")
        opened = frozenset(self._open - {name})
        return Moment(name, stamp, self._shared, time.monotonic(), blurred, opened, unknown=frozenset(unknown))

    def _find_appended(self) -> None:
        """Take for an output what matches as a state file, and stays open while other states are completed."""
        now = time.monotonic()
        for name, (since, states) in list(self._opened.items()):
            if self._completions[name] or name not in self._open or is_database(self._path(name)):
                del self._opened[name]
                self._set_length(name, None)
            elif name not in self._lengths:
                self._unsettled.add(name)  # its length is read with the next events, in case that it is appended to
            elif self._states - states >= APPENDED_STATES and now - since >= APPENDED_SECONDS:
                del self._opened[name]
                self.appended.add(name)
                self._unsettled.add(name)
                self.moments.pop(name, None)

    def _follow_folder(self, event: FileEvent, batch: Batch) -> list[Moment]:
        """Forget the names below a folder that was moved away or removed; take those below its new name."""
        found: list[Moment] = []
        if event.what & GONE:
            above = f"{event.name}/"
            for name in [name for name in self._lengths if name.startswith(above)]:
                self._set_length(name, None)
                batch.seen.discard(name)
            for name in [name for name in (*self.moments, *self._fresh) if name.startswith(above)]:
                self._forget(name)
        elif event.what & Happened.MOVED_TO:
            for below in fs.tree_files(self._path(event.name)):
                found += self._found(f"{event.name}/{below.as_posix()}", batch)
        return found

    def _found(self, name: str, batch: Batch) -> list[Moment]:
        """Take a file that came with its folder: a state is complete with the rename of that."""
        self._changed.add(name)
        if not self._is_state(name):
            if name not in batch.sizes:
                self._set_length(name, self._reader.size(name)[0])
            return []
        self._completions[name] += 1
        self._moved.add(name)
        stamp = state_stamp_of(self._path(name))
        return [] if stamp is None or name in batch.last else [self._moment(name, stamp, batch)]

    # --- to forget ---

    def _forget(self, name: str) -> None:
        self.moments.pop(name, None)
        self._fresh.pop(name, None)

    def _forget_all(self) -> None:
        """Forget what events have shown of states: some are lost."""
        for known in (self.moments, self._past, self._fresh, self._completions, self._moved, self._in_place):
            known.clear()


def _limit(moments: dict[Any, Moment]) -> None:
    while len(moments) > MOST_PAST:
        moments.pop(next(iter(moments)))
