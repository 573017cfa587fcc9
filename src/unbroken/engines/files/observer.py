"""Watches a program's files: when a state file is complete, and how long every other file was at that moment.

The kernel reports events in their order, so the length that a growing file had when a state was written is known,
although it is read a moment later: it is the length read before, if no write was reported in between; or the length
read now, if no write was reported since.  Where a write was reported on both sides, the length is unknown and that
moment is not used.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from unbroken.engines.files.databases import JOURNAL, LOG, database_of, is_beside, is_database
from unbroken.engines.files.states import Stamp, state_stamp_of
from unbroken.engines.files.writers import DYING_SECONDS, ProgramLife
from unbroken.errors import StorageError
from unbroken.system import fs
from unbroken.system.file_events import FileEvent, FileEvents, Happened, is_nobodys

# A program that writes without a pause is asked so often for a quiet moment in which lengths are exact.
MOST_ROUNDS = 50
WAKE_SECONDS = 0.5
# What is kept open is appended to if it was written so long, while so many states were completed beside it.
APPENDED_SECONDS = 1.0
APPENDED_STATES = 2
# A program that replaces its state again and again is copied from a file that was held open for a moment.
MOST_PAST, MOST_PAST_LENGTHS = 256, 1000
# A file whose writing was not seen is complete if it stays as it is for so long.
ALIKE_SECONDS = 1.0
# A moment waits so long, at most, for the next look at the program.
REST_SECONDS = 0.05
# A write is reported so soon after it shows in the size of the file, if its process is not kept waiting meanwhile.
REPORTED_SECONDS = 0.005
# So long, at most, a moment without reports is waited for: what is written meanwhile costs an exact length.
QUIET_WITHIN_SECONDS = 2 * REPORTED_SECONDS
# An output that was written again so often, and did not grow, is no file that is appended to.
REWRITES = 2
_WRITTEN = Happened.WRITTEN | Happened.CREATED | Happened.CLOSED | Happened.MOVED_TO
_COMPLETED = Happened.CLOSED | Happened.MOVED_TO
_GONE = Happened.DELETED | Happened.MOVED_FROM


@dataclass(frozen=True)
class Moment:
    """The completion of a state file: its stamp then, and the length in bytes of every other file, by name.

    `unknown` are files whose length then is unknown; `blurred` names one of them that is measured: the lengths are good
    only if it is empty.
    """

    name: str
    stamp: Stamp
    lengths: Mapping[str, int]
    at: float  # time.monotonic()
    blurred: str = ""
    opened: frozenset[str] = frozenset()  # the others that were open for writing
    is_late_doubt: bool = False  # told before, and not blurred then
    unknown: frozenset[str] = frozenset()


@dataclass
class _Batch:
    """Events that were processed together, and how the files were after all of them."""

    events: list[FileEvent]
    sizes: dict[str, int | None] = field(default_factory=dict)
    stamps: dict[str, Stamp | None] = field(default_factory=dict)  # of states that were complete then
    written: dict[str, int] = field(default_factory=dict)  # the place of the last write of each output
    grown: dict[str, int] = field(default_factory=dict)  # of the last one that can change its length: no close
    last: dict[str, int] = field(default_factory=dict)  # the place of the last event of each file
    changed: dict[str, int] = field(default_factory=dict)  # the time of the last write of each output
    logged: dict[str, int] = field(default_factory=dict)  # the place of the last write to each write-ahead log
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


class FileObserver:
    """Observes the files below `root` in a thread of its own, from `start` to `close`.

    `is_state` says which names are state files; `is_watched` which folders are watched, and `also` what is watched
    elsewhere, by the names that its events have.  `life` knows the program's processes: a file that was closed by the
    end of one is not complete.  In the observer's thread `on_moment` is called for each completed state, and `on_rest`
    every now and then.
    """

    def __init__(
        self,
        root: Path,
        is_state: Callable[[str], bool],
        is_watched: Callable[[str], bool] = lambda _: True,
        on_moment: Callable[[Moment], None] = lambda _: None,
        also: Mapping[str, Path] | None = None,
        on_rest: Callable[[], None] = lambda: None,
        is_measured: Callable[[str], bool] = lambda _: True,
        life: ProgramLife | None = None,
    ) -> None:
        self._root, self._matches, self._is_watched, self._on_moment = root, is_state, is_watched, on_moment
        self._also, self._on_rest, self._is_measured = also or {}, on_rest, is_measured
        self._life = life
        self._fresh: dict[str, Moment] = {}  # it may be the end of the program that has closed the file
        self._trusted_from: dict[str, float] = {}  # of these, time.monotonic()
        self._events: FileEvents | None = None
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._lock = threading.Lock()
        self._lengths: dict[str, int] = {}
        self._unsettled: set[str] = set()  # their length in `_lengths` is not that of the last event
        self._kinds: dict[str, Counter[Happened]] = {}
        self._open: set[str] = set()  # written since they were last closed
        self._changed: set[str] = set()  # written at all
        self._opened: dict[str, tuple[float, int]] = {}  # when a file was first written, and how many states were then
        self._states = 0  # how many were completed
        self._alike: dict[str, tuple[Stamp, float]] = {}  # since when a file is as it is
        self._shared: Mapping[str, int] | None = None  # a copy of `_lengths`, as long as that stays as it is
        self._closed: dict[str, int] = {}  # the length of each output when it was last closed, or replaced
        self._rewrites: Counter[str] = Counter()
        self._committed: set[str] = set()  # state files that are databases
        self._changed_ns = 0  # of the file whose size was read last
        self._doubtful: dict[str, tuple[int, list[Moment]]] = {}  # sizes that may hold a write that is reported later
        self.appended: set[str] = set()  # that match as state files, and are kept open and appended to
        self.moments: dict[str, Moment] = {}  # the last one of each state file
        self._past: dict[tuple[str, Stamp], Moment] = {}  # the last ones of files that are replaced by a rename
        self.last_state_event = 0.0
        self.overflows = 0
        self.why_blind = ""

    # --- life ---

    def start(self, names: Iterable[str] = ()) -> None:
        """Begin; `names` are the files that are there.  `why_blind` says why nothing can be observed, if so."""
        try:
            self._events = FileEvents(self._root, self._is_watched, self._also)
        except StorageError as error:
            self.why_blind = str(error)
            return
        for name in names:
            if not self._is_state(name) and (size := self._size(name)) is not None:
                self._lengths[name] = size
        self._thread = threading.Thread(target=self._watch, name="file-observer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Process what is queued and end the thread; calling it twice is fine."""
        self._is_over = True
        if self._thread is not None and self._events is not None:
            if self._thread.is_alive():
                self._events.wake()
            self._thread.join()
            self._thread = None

    @property
    def is_blind(self) -> bool:
        return bool(self.why_blind)

    # --- what was learned ---

    def settle(self, seconds: float = 1.0) -> None:
        """Wait until the events of what has happened until now are processed, at most so long."""
        if self._thread is None:
            return
        marker = threading.Event()
        self._waiting = marker
        if self._events is not None and not self.is_blind:
            self._events.wake()
            marker.wait(seconds)

    _waiting: threading.Event | None = None

    def moment_of(self, stamps: Mapping[str, Stamp]) -> Moment | None:
        """Return the moment at which the last of these state files was completed; None if one changed since."""
        with self._lock:
            if len(stamps) == 1 and (past := self._past.get(next(iter(stamps.items())))) is not None:
                return past  # of a file that is held open, and was replaced since
            found = [self.moments.get(name) for name in stamps]
            if not found or any(each is None or stamps[each.name] != each.stamp for each in found):
                return None
            if self._open.intersection(stamps) - self._committed:
                return None
            return max((each for each in found if each is not None), key=lambda each: each.at)

    def _remember(self, moments: Iterable[Moment]) -> None:
        """Keep the last moments of files that are always replaced, while their lengths take little memory."""
        for moment in moments:
            if self.is_renamed(moment.name) and len(moment.lengths) <= MOST_PAST_LENGTHS:
                self._past.pop((moment.name, moment.stamp), None)
                self._past[moment.name, moment.stamp] = moment
        while len(self._past) > MOST_PAST:
            self._past.pop(next(iter(self._past)))

    def _is_state(self, name: str) -> bool:
        return name not in self.appended and self._matches(name) and not is_beside(name, self._matches)

    def _path(self, name: str) -> Path:
        first, _, rest = name.partition("/")
        return self._also[first] / rest if first in self._also else self._root / name

    def _find_appended(self) -> None:
        """Take for an output what matches as a state file, and stays open while other states are completed."""
        now = time.monotonic()
        for name, (since, states) in list(self._opened.items()):
            if self.completions(name) or name not in self._open or is_database(self._path(name)):
                del self._opened[name]
                if name in self._lengths:
                    self._set_length(name, None)
            elif name not in self._lengths:
                self._unsettled.add(name)  # its length is read with the next events, in case that it is appended to
            elif self._states - states >= APPENDED_STATES and now - since >= APPENDED_SECONDS:
                del self._opened[name]
                self.appended.add(name)
                self._unsettled.add(name)
                self.moments.pop(name, None)

    def is_renamed(self, name: str) -> bool:
        """Return True if the file was always put in place by a rename, and never written under its name."""
        kinds = self._kinds.get(name)
        return kinds is not None and kinds[Happened.MOVED_TO] > 0 and kinds[Happened.WRITTEN] == 0

    def is_written_in_place(self, name: str) -> bool:
        """Return True if the file was written under its own name more than once."""
        kinds = self._kinds.get(name)
        return kinds is not None and kinds[Happened.WRITTEN] > 0

    def is_left_alone(self, name: str, stamp: Stamp) -> bool:
        """Return True for a file of which no write was seen, and that has been the same for some seconds.

        Such is a file that came with its folder, before that was watched.
        """
        if self.completions(name) or self.is_open(name):
            self._alike.pop(name, None)
            return False
        known, since = self._alike.get(name, (None, 0.0))
        if known != stamp:
            self._alike[name] = (stamp, time.monotonic())
            return False
        return time.monotonic() - since >= ALIKE_SECONDS

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
        kinds = self._kinds.get(name)
        return 0 if kinds is None else kinds[Happened.CLOSED] + kinds[Happened.MOVED_TO]

    def written(self) -> set[str]:
        """Return the names of all files that were written, states included."""
        with self._lock:
            return set(self._changed)

    # --- the thread ---

    def _watch(self) -> None:
        if self._events is None:
            return
        with self._events as events:
            while True:
                is_over, waiting = self._is_over, self._waiting
                try:
                    rest, asked = REST_SECONDS if self._fresh else WAKE_SECONDS, time.monotonic()
                    found = events.next(0 if is_over or waiting else rest)
                    if found:
                        self._process(found, events)
                    elif self._life is not None:
                        self._life.all_is_read(asked)
                except StorageError as error:  # no watch is left for a new folder
                    self._go_blind(error)
                    found = []
                self._rest()
                if not found:
                    if waiting is not None:
                        self._waiting = None
                        waiting.set()
                    elif is_over or self.is_blind:
                        return

    def _rest(self) -> None:
        """Take what waits for a sign of life, or for the time to be written down; at most every 50 ms."""
        if time.monotonic() < self._next_rest and not self._is_over:
            return
        self._next_rest = time.monotonic() + REST_SECONDS
        self._take([])
        self._on_rest()

    _next_rest = 0.0

    def trust(self) -> None:
        """Take what was closed last: the program has left well, and was not ended while it wrote."""
        with self._lock:
            self.moments |= self._fresh
            self._remember(self._fresh.values())
            self._fresh = {}

    def _take(self, moments: Sequence[Moment]) -> None:
        """Take the moments of files that were put in place by a rename, and others if the program still works now.

        Where the end of a process may have closed a file, only if the program still works some seconds later.
        """
        with self._lock:
            self._fresh |= {moment.name: moment for moment in moments}
            is_alive = bool(self._fresh) and (self._life is None or self._life.is_alive())
            now = time.monotonic()
            for moment in moments:
                is_doubtful = self._life is not None and self._life.may_have_closed(moment.stamp[1])
                self._trusted_from[moment.name] = now + DYING_SECONDS if is_doubtful else now
            taken = [
                each
                for each in self._fresh.values()
                if (is_alive and now >= self._trusted_from[each.name]) or self.is_renamed(each.name)
            ]
            for moment in taken:
                del self._fresh[moment.name], self._trusted_from[moment.name]
                self.moments[moment.name] = moment
                self._remember([moment])
        for moment in taken:
            self._on_moment(moment)

    def _process(self, first: Sequence[FileEvent], events: FileEvents) -> None:
        batch = self._gather(first, events)
        moments: list[Moment] = []
        with self._lock:
            for at, event in enumerate(batch.events):
                batch.at = at
                if event.what & Happened.OVERFLOW:
                    self._overflow(batch)
                elif event.what & Happened.IS_FOLDER and not self._is_state(event.name):
                    moments += self._follow_folder(event, batch)
                elif self._is_state(event.name):
                    moments += self._state_event(event, batch)
                elif is_beside(event.name, self._is_state):
                    moments += self._commit(event, batch)
                else:
                    self._output_event(event, batch)
            self._unsettled = batch.late | (set(self._lengths) if batch.is_torn else set())
            for name, size in batch.sizes.items():
                if size is None or name not in batch.late:
                    self._set_length(name, size)
            moments = [moment for moment in moments if not batch.is_torn]
            late = self._late_doubts(batch)
            self._doubtful |= {name: (self._lengths.get(name, 0), moments) for name in batch.doubtful() if moments}
            self._states += len(moments)
            self._find_appended()
        for moment in late:
            self._on_moment(moment)
        self._take(moments)

    def _late_doubts(self, batch: _Batch) -> list[Moment]:
        """Blur the moments whose lengths had a write that was reported only now: it did not change the size."""
        found: list[Moment] = []
        for name in batch.written.keys() & self._doubtful.keys():
            size, moments = self._doubtful.pop(name)
            if batch.sizes.get(name) == size and self._is_doubted(name):
                found += [replace(moment, blurred=name, is_late_doubt=True) for moment in moments if not moment.blurred]
        self._remember(found)
        found = [moment for moment in found if self.moments.get(moment.name, moment).stamp == moment.stamp]
        self.moments |= {moment.name: moment for moment in found if moment.name in self.moments}
        self._fresh |= {moment.name: moment for moment in found if moment.name in self._fresh}
        return [moment for moment in found if moment.name in self.moments]

    def _is_doubted(self, name: str) -> bool:
        return self._is_measured(name) and not self._is_state(name) and not self.is_rewritten(name)

    def _gather(self, first: Sequence[FileEvent], events: FileEvents) -> _Batch:
        """Read sizes and stamps until nothing was reported since: they are those at the end of these events."""
        batch, more = _Batch(list(first)), list(first)
        for name in self._unsettled:
            self._read_size(batch, name)
        until = 0.0
        for _ in range(MOST_ROUNDS):
            self._read(batch, more)
            more = events.next(0)
            if not more and batch.doubtful():
                until = until or time.monotonic() + QUIET_WITHIN_SECONDS
                more, batch.is_quiet = _listen(events, until)
            if not more:
                break
            batch.events += more
        batch.late = {event.name for event in more if self._is_output_write(event)}
        for event in more:
            batch.stamps.pop(event.name, None)
        for at, event in enumerate(batch.events):
            if self._is_output_write(event):
                batch.written[event.name] = at
                if event.what & ~Happened.CLOSED & _WRITTEN:
                    batch.grown[event.name] = at
            if event.what & (_WRITTEN | _GONE):
                batch.last[event.name] = at
            if event.what & Happened.WRITTEN and event.name.endswith(LOG):
                batch.logged[event.name] = at
            batch.is_torn |= bool(event.what & Happened.OVERFLOW)
        batch.seen = set(self._unsettled)
        return batch

    def _read(self, batch: _Batch, events: Sequence[FileEvent]) -> None:
        for event in events:
            is_measured = self._is_output_write(event)
            if is_measured:
                self._read_size(batch, event.name)
            if (not is_measured or event.name in self._opened) and self._is_state(event.name):
                batch.stamps[event.name] = self._complete_stamp(event)
            if is_beside(event.name, self._is_state):
                database = database_of(event.name)
                batch.stamps[database] = state_stamp_of(self._path(database))

    def _read_size(self, batch: _Batch, name: str) -> None:
        batch.sizes[name] = self._size(name)
        batch.changed[name] = self._changed_ns

    def _complete_stamp(self, event: FileEvent) -> Stamp | None:
        """Return the stamp of a state that this event may complete; None if somebody has it open for writing.

        What was made before its folder was watched, or by a link, is reported as created and nothing more.
        """
        is_new = bool(event.what & Happened.CREATED)
        if not event.what & _COMPLETED and not (is_new and is_nobodys(self._path(event.name))):
            return None
        return state_stamp_of(self._path(event.name))

    def _is_output_write(self, event: FileEvent) -> bool:
        is_file = bool(event.name) and not event.what & Happened.IS_FOLDER
        is_file = is_file and not is_beside(event.name, self._is_state)
        is_measured = not self._is_state(event.name) or self._is_suspect(event.name)
        return is_file and bool(event.what & _WRITTEN) and is_measured

    def _is_suspect(self, name: str) -> bool:
        """Return True for what matches as a state file, and may turn out to be appended to."""
        return name in self._opened and not self.completions(name)

    def _output_event(self, event: FileEvent, batch: _Batch) -> None:
        if event.what & _GONE:
            self._set_length(event.name, None)
            self._open.discard(event.name)
            batch.seen.discard(event.name)
            return
        batch.seen.add(event.name)
        self._changed.add(event.name)
        if batch.written[event.name] == batch.at:
            self._note_rewritten(event, batch.sizes.get(event.name))
        self._note_open(event)
        is_new = event.what & Happened.CREATED and batch.last.get(event.name) == batch.at
        if is_new and not is_nobodys(self._path(event.name)):
            self._open.add(event.name)  # though nothing is written yet

    def _note_rewritten(self, event: FileEvent, size: int | None) -> None:
        """Count how often a file was replaced, or closed no longer than before although it was written."""
        is_written = event.name in self._open
        if size is None or not (event.what & Happened.MOVED_TO or (event.what & Happened.CLOSED and is_written)):
            return
        before = self._closed.get(event.name)
        if before is not None and (event.what & Happened.MOVED_TO or size <= before):
            self._rewrites[event.name] += 1
        self._closed[event.name] = size

    def _state_event(self, event: FileEvent, batch: _Batch) -> list[Moment]:
        self.last_state_event = time.monotonic()
        if event.what & _GONE:
            self._forget(event.name)
            self._open.discard(event.name)
            return []
        self._changed.add(event.name)
        kinds = self._kinds.setdefault(event.name, Counter())
        kinds.update(kind for kind in (Happened.WRITTEN, Happened.CLOSED, Happened.MOVED_TO) if event.what & kind)
        if event.what & Happened.WRITTEN and event.name not in self._open:
            self._look()  # whoever writes is known before its end closes the file
        self._note_open(event)
        if not event.what & _COMPLETED:
            if event.what & Happened.WRITTEN:
                self._opened.setdefault(event.name, (time.monotonic(), self._states))
                batch.seen.add(event.name)
            self._forget(event.name)
        is_last = batch.last.get(event.name) == batch.at
        stamp = batch.stamps.get(event.name) if is_last else None
        if stamp is None:
            return []
        if not event.what & _COMPLETED:  # it was completed at some time since its folder was made
            batch.seen |= {name for name, at in batch.written.items() if at > batch.at}
        batch.seen.discard(event.name)
        self._set_length(event.name, None)  # taken when it was written, in case that it is appended to
        return [self._moment(event.name, stamp, batch)]

    def _commit(self, event: FileEvent, batch: _Batch) -> list[Moment]:
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

    def _moment(self, name: str, stamp: Stamp, batch: _Batch) -> Moment:
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

    def _set_length(self, name: str, size: int | None) -> None:
        if self._lengths.get(name) == size:
            return
        self._shared = None
        if size is None:
            self._lengths.pop(name, None)
        else:
            self._lengths[name] = size

    def _forget(self, name: str) -> None:
        self.moments.pop(name, None)
        self._fresh.pop(name, None)

    def _look(self) -> None:
        if self._life is not None:
            self._life.is_alive()

    def _note_open(self, event: FileEvent) -> None:
        if event.what & _COMPLETED:
            self._open.discard(event.name)
        elif event.what & Happened.WRITTEN:
            self._open.add(event.name)

    def _follow_folder(self, event: FileEvent, batch: _Batch) -> list[Moment]:
        """Forget the names below a folder that was moved away or removed; take those below its new name."""
        if event.what & _GONE:
            above = f"{event.name}/"
            for name in [name for name in self._lengths if name.startswith(above)]:
                self._set_length(name, None)
                batch.seen.discard(name)
            for name in [name for name in (*self.moments, *self._fresh) if name.startswith(above)]:
                self._forget(name)
            return []
        found: list[Moment] = []
        if event.what & Happened.MOVED_TO:
            for below in fs.tree_files(self._path(event.name)):
                found += self._found(f"{event.name}/{below.as_posix()}", batch)
        return found

    def _found(self, name: str, batch: _Batch) -> list[Moment]:
        """Take a file that came with its folder: a state is complete with the rename of that."""
        self._changed.add(name)
        if not self._is_state(name):
            if name not in batch.sizes:
                self._set_length(name, self._size(name))
            return []
        self._kinds.setdefault(name, Counter())[Happened.MOVED_TO] += 1
        self.last_state_event = time.monotonic()
        stamp = state_stamp_of(self._path(name))
        return [] if stamp is None or name in batch.last else [self._moment(name, stamp, batch)]

    def _overflow(self, batch: _Batch) -> None:
        """Forget what events would have told: they are lost."""
        self.overflows += 1
        self.moments.clear()
        self._past.clear()
        self._fresh.clear()
        self._kinds.clear()
        self._open.clear()
        batch.seen.update(self._lengths)

    def _go_blind(self, error: StorageError) -> None:
        """Forget what was learned: from now on nothing is."""
        with self._lock:
            self.moments.clear()
            self._past.clear()
            self._fresh.clear()
            self._kinds.clear()
            self.why_blind = str(error)

    def _size(self, name: str) -> int | None:
        try:
            found = os.lstat(self._path(name))
        except OSError:
            return None
        self._changed_ns = found.st_mtime_ns
        return found.st_size if stat.S_ISREG(found.st_mode) else None


def _listen(events: FileEvents, until: float) -> tuple[list[FileEvent], bool]:
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
