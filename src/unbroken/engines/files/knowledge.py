"""Learn from the events of a program's files: which states are complete, and how long each other file was then.

The kernel reports events in their order, so the length that a growing file had when a state was written is known,
although it is read a moment later: it is the length read before, if no write was reported in between; or the length
read now, if no write was reported since.  Where a write was reported on both sides, the length is unknown.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from unbroken.engines.files.batch import COMPLETED, GONE, GROWN, Batch, BatchReader
from unbroken.engines.files.databases import is_beside, is_database
from unbroken.engines.files.moments import Moment
from unbroken.engines.files.states import ELSEWHERE, Stamp
from unbroken.engines.files.writers import ProgramLife
from unbroken.system.file_events import FileEvent, Happened

logger = logging.getLogger(__name__)

# An open file is being appended to if it was written for this long, while this many states were completed.
APPENDED_SECONDS = 1.0
APPENDED_STATES = 2
# A file that is replaced again and again is copied as it was a moment ago: so many moments of one stay.
MOST_PAST = 16
# An output that was written again so often, and did not grow, is no file that is appended to.
REWRITES = 2


class FileKnowledge:
    """Learn from batches of events.

    `is_state` says which names are state files, `also` what is watched elsewhere, by the names that its events have.
    `life` knows the program's processes: a file that was closed by the end of one is not complete.
    """

    def __init__(
        self, root: Path, is_state: Callable[[str], bool], life: ProgramLife, also: Mapping[str, Path] | None = None
    ) -> None:
        self._root, self._matches, self._life, self._also = root, is_state, life, also or {}
        self._reader = BatchReader(self._path, self.is_state, life.written)
        self._lock = threading.RLock()
        # Lengths.
        self._lengths: dict[str, int] = {}  # of outputs, and of all files that are open
        self._is_shared = False  # with a moment
        self._unsettled: set[str] = set()  # their length in `_lengths` is not that of the last event
        self._doubtful: dict[str, tuple[int, list[Moment]]] = {}  # sizes that may hold a write that is reported later
        self._closed: dict[str, int] = {}  # the length of each output when it was last closed, or replaced
        self._rewrites: Counter[str] = Counter()
        # How files are written.
        self._open: dict[str, tuple[float, int]] = {}  # since when, and how many states were completed before
        self._changed: set[str] = set()
        self._completions: Counter[str] = Counter()
        self._moved: set[str] = set()
        self._in_place: set[str] = set()
        # States.
        self._moments: defaultdict[str, dict[Stamp, Moment]] = defaultdict(dict)  # the newest last
        self._fresh: dict[str, tuple[Moment, float]] = {}  # and when it is trusted, if the program works then
        self.last_moment: Moment | None = None
        self._count = 0
        self.appended: set[str] = set()  # that match as state files, and are kept open and appended to

    # --- what was learned ---

    def moment(self, name: str) -> Moment | None:
        """Return the last completion of a state file; None if nothing is known of one."""
        with self._lock:
            return next(reversed(self._moments.get(name, {}).values()), None)

    def moments(self) -> list[Moment]:
        """Return the last completion of each state file."""
        with self._lock:
            return [moment for name in self._moments if (moment := self.moment(name)) is not None]

    def moment_of(self, stamps: Mapping[str, Stamp]) -> Moment | None:
        """Return the moment at which the last of these state files was completed; None if one changed since."""
        with self._lock:
            found = [self._moments.get(name, {}).get(stamp) for name, stamp in stamps.items()]
            is_open = self._open.keys() & stamps.keys() - self._reader.databases
            known = [moment for moment in found if moment is not None]
            if len(known) < len(found) or not known or is_open:
                return None
            return _last_of(known)

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
            for moment, _ in self._fresh.values():
                self._keep(moment)
            self._fresh = {}

    def know(self, moments: Iterable[Moment], appended: Iterable[str]) -> None:
        """Take over what another process has learned."""
        self.appended |= set(appended)
        for moment in moments:
            self._moved |= {moment.name} if moment.is_renamed else set()
            self._keep(moment)

    # --- batches ---

    def _learn(self, batch: Batch) -> tuple[list[Moment], list[Moment]]:
        """Return the moments that a batch makes, and earlier ones that it makes doubtful."""
        moments: list[Moment] = []
        with self._lock:
            for at, event in enumerate(batch.events):
                batch.at = at
                moments += self._take_event(event, batch)
            for name, size in batch.sizes.items():
                if size is None or name not in batch.late:
                    self.set_length(name, size if name in self._open or not self.is_state(name) else None)
            self._unsettled = batch.late
            moments = [] if batch.is_torn else moments
            late = self._late_doubts(batch)
            self._doubtful |= {name: (self._lengths.get(name, 0), moments) for name in batch.doubtful() if moments}
            self._count += len(moments)
            self._find_appended()
        return moments, late

    def _trusted(self, moments: Sequence[Moment]) -> list[Moment]:
        """Return the moments of files that were put in place by a rename, and others if the program still works now.

        Where the end of a process may have closed a file, only if the program still works some seconds later.
        """
        with self._lock:
            is_alive = bool(moments or self._fresh) and self._life.is_alive()
            now = time.monotonic()
            self._fresh |= {each.name: (each, now + self._doubt_seconds(each)) for each in moments}
            waiting = list(self._fresh.values())
            taken = [each for each, at in waiting if (is_alive and now >= at) or self.is_renamed(each.name)]
            if moments:
                logger.debug(f"files: {len(taken)} of {len(waiting)} states that were closed count now")
            for moment in taken:
                del self._fresh[moment.name]
                self._keep(moment)
        return taken

    def _doubt_seconds(self, moment: Moment) -> float:
        return self._life.doubt_seconds(moment.stamp[1], is_first=self._completions[moment.name] < 2)

    def _keep(self, moment: Moment) -> None:
        """Remember a moment; earlier ones only of a file that is always replaced."""
        kept, self.last_moment = self._moments[moment.name], moment
        kept.pop(moment.stamp, None)
        kept[moment.stamp] = moment
        while len(kept) > (MOST_PAST if self.is_renamed(moment.name) else 1):
            del kept[next(iter(kept))]
        if moment.name.startswith(ELSEWHERE):
            for name in [name for name in self._moments if name.startswith(ELSEWHERE)][:-MOST_PAST]:
                del self._moments[name]

    def _late_doubts(self, batch: Batch) -> list[Moment]:
        """Doubt the moments whose lengths had a write that was reported only now: it did not change the size."""
        found: dict[tuple[str, Stamp], Moment] = {}
        for name in {event.name for event in batch.events if event.what & GROWN} & self._doubtful.keys():
            size, moments = self._doubtful.pop(name)
            if batch.sizes.get(name) == size and not self.is_rewritten(name):
                for each in moments:
                    at = each.name, each.stamp
                    found[at] = found.get(at, each).doubted(name)
        for (name, stamp), moment in found.items():
            if stamp in self._moments.get(name, {}):
                self._moments[name][stamp] = moment
            elif name in self._fresh and self._fresh[name][0].stamp == stamp:
                self._fresh[name] = (moment, self._fresh[name][1])
        return [moment for moment in found.values() if self.moment(moment.name) is moment]

    # --- events ---

    def _take_event(self, event: FileEvent, batch: Batch) -> list[Moment]:
        """Return the moments that an event makes."""
        name, what = event.name, event.what
        if what & Happened.OVERFLOW:
            self._forget_all()
        elif what & GONE:
            for each in [name, *self._below(name)] if what & Happened.IS_FOLDER else [name]:
                self.set_length(each, None)
                self._open.pop(each, None)
                self._fresh.pop(each, None)
                if not each.startswith(ELSEWHERE):  # what was handed over is taken away by us
                    self._moments.pop(each, None)
        elif self.is_state(name):
            return self._state_event(event, batch)
        elif not what & Happened.IS_FOLDER:
            self._output_event(event, batch)
        return []

    def _below(self, folder: str) -> list[str]:
        return [name for name in {*self._lengths, *self._open, *self._moments} if name.startswith(f"{folder}/")]

    def _output_event(self, event: FileEvent, batch: Batch) -> None:
        name, what = event.name, event.what
        self._changed.add(name)
        size = batch.sizes.get(name)
        if size is not None and batch.is_last(event):
            is_moved = bool(what & Happened.MOVED_TO)
            if is_moved or (what & Happened.CLOSED and name in self._open):
                before = self._closed.get(name)
                self._rewrites[name] += before is not None and (is_moved or size <= before)
                self._closed[name] = size
        is_new = what & Happened.CREATED and not what & Happened.FOUND and size is not None
        self._note_open(event, is_written=bool(what & Happened.WRITTEN or is_new))

    def _note_open(self, event: FileEvent, *, is_written: bool) -> None:
        if event.what & COMPLETED:
            self._open.pop(event.name, None)
        elif is_written:
            self._open.setdefault(event.name, (time.monotonic(), self._count))

    def _state_event(self, event: FileEvent, batch: Batch) -> list[Moment]:
        name, what = event.name, event.what
        self._changed.add(name)
        self._completions[name] += bool(what & COMPLETED)
        if what & Happened.MOVED_TO:
            self._moved.add(name)
        if what & Happened.WRITTEN:
            self._in_place.add(name)
            if name not in self._open:
                self._life.look()  # a writer is known before its end closes the file
        self._note_open(event, is_written=bool(what & Happened.WRITTEN) and name not in self._reader.databases)
        if not what & COMPLETED and name not in self._reader.databases:
            self._moments.pop(name, None)
            self._fresh.pop(name, None)
        stamp = batch.stamps.get(name) if batch.is_last(event) else None
        if stamp is None:
            return []
        self.set_length(name, None)  # taken when it was written, in case that it is appended to
        is_found = bool(what & Happened.FOUND)
        lengths, unknown = self._lengths_at(batch, stamp, is_found=is_found)
        opened = frozenset(self._open.keys() - {name})
        return [Moment(name, stamp, lengths, time.monotonic(), opened, unknown, is_found=is_found)]

    def _lengths_at(self, batch: Batch, stamp: Stamp, *, is_found: bool) -> tuple[Mapping[str, int], frozenset[str]]:
        """Return the lengths at the event that is processed, and what is unknown; moments share them where they can."""
        known, unknown = batch.lengths_at(stamp, is_found=is_found)
        if not known and not unknown:
            self._is_shared = True
            return self._lengths, unknown
        if batch.shared is None or batch.shared[:2] != (known, unknown):
            sizes = {**self._lengths, **known}.items()
            lengths = {name: size for name, size in sizes if size is not None and name not in unknown}
            batch.shared = known, unknown, lengths
        return batch.shared[2], unknown

    def set_length(self, name: str, size: int | None) -> None:
        """Note the length of a file; None for one that is gone, or needs none."""
        if self._lengths.get(name) == size:
            return
        if self._is_shared:
            self._lengths, self._is_shared = dict(self._lengths), False
        if size is None:
            del self._lengths[name]
        else:
            self._lengths[name] = size

    def _find_appended(self) -> None:
        """Take for an output what matches as a state file, and stays open while other states are completed."""
        for name, (since, states) in self._open.items():
            is_long = self._count - states >= APPENDED_STATES and time.monotonic() - since >= APPENDED_SECONDS
            is_never_closed = not self._completions[name] and self.is_state(name)
            if is_long and is_never_closed and not is_database(self._path(name)):
                self.appended.add(name)

    # --- names ---

    def is_state(self, name: str) -> bool:
        """Return True for a state file, which is not appended to."""
        return name not in self.appended and self._matches(name) and not is_beside(name, self._matches)

    def _path(self, name: str) -> Path:
        first, _, rest = name.partition("/")
        return self._also[first] / rest if first in self._also else self._root / name

    def _forget_all(self) -> None:
        """Forget what events have shown: some are lost."""
        for known in (self._moments, self._fresh, self._completions, self._moved, self._in_place, self._open):
            known.clear()
        self._lengths, self._is_shared = {}, False


def _last_of(moments: Sequence[Moment]) -> Moment:
    """Return the last of the moments of one state; those that were only found may have been after it."""
    last = max(moments, key=lambda each: each.at)
    found = [moment for moment in moments if moment.is_found and moment is not last]
    unknown = frozenset(name for moment in found for name in moment.unknown)
    sizes = [(name, size) for moment in found for name, size in moment.lengths.items()]
    grown = {name: size for name, size in sizes if size > last.lengths.get(name, -1)}
    if not unknown and not grown:
        return last
    return replace(last, unknown=last.unknown | unknown, lengths={**last.lengths, **grown})
