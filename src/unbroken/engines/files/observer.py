"""Watch a program's files in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from unbroken.engines.files.batch import Batch
from unbroken.engines.files.knowledge import FileKnowledge
from unbroken.engines.files.moments import Moment
from unbroken.engines.files.writers import ProgramLife
from unbroken.errors import StorageError
from unbroken.system.file_events import FileEvent, FileEvents

WAKE_SECONDS = 0.5
# A moment waits so long, at most, for the next look at the program.
REST_SECONDS = 0.05


class FileObserver(FileKnowledge):
    """Observe the files below `root`, from `start` to `close`.

    `is_watched` says which folders are watched.  In the observer's thread `on_moment` is called for each completed
    state, and `on_rest` every now and then.
    """

    def __init__(
        self,
        root: Path,
        is_state: Callable[[str], bool],
        life: ProgramLife,
        *,
        is_watched: Callable[[str], bool] = lambda _: True,
        on_moment: Callable[[Moment], None] = lambda _: None,
        on_rest: Callable[[], None] = lambda: None,
        also: Mapping[str, Path] | None = None,
    ) -> None:
        super().__init__(root, is_state, life, also)
        self._is_watched, self._on_moment, self._on_rest = is_watched, on_moment, on_rest
        self._events: FileEvents | None = None
        self._thread: threading.Thread | None = None
        self._waiting: threading.Event | None = None
        self._is_over = False
        self._next_rest = 0.0
        self.why_blind = ""  # why nothing can be observed, if so
        self.on_event: Callable[[FileEvent], None] = lambda _: None  # called in the observer's thread, at once

    # --- life ---

    def start(self, names: Iterable[str] = ()) -> None:
        """Begin; `names` are the files that are there."""
        try:
            self._events = FileEvents(self._root, self._is_watched, self._also)
        except StorageError as error:
            self.why_blind = str(error)
            return
        for name in names:
            self.set_length(name, self._reader.size(name)[0])
        self._thread = threading.Thread(target=self._watch, args=[self._events], name="file-observer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Process what is queued and end the thread; calling it twice is fine."""
        self._is_over = True
        if self._thread is not None and self._events is not None:
            if self._thread.is_alive():
                self._events.wake()
            self._thread.join()
            self._thread = None

    def settle(self, seconds: float = 1.0) -> None:
        """Wait until the events of what has happened until now are processed, at most so long."""
        if self._thread is None or self._events is None or self.why_blind:
            return
        self._waiting = marker = threading.Event()
        self._events.wake()
        marker.wait(seconds)

    def resolve_doubts(self, seconds: float) -> None:
        """Wait, at most so long, until the program is seen to work on after the end of one of its processes."""
        give_up = time.monotonic() + seconds
        while self._fresh and time.monotonic() < give_up and self._thread is not None:
            time.sleep(REST_SECONDS)

    # --- the thread ---

    def _watch(self, opened: FileEvents) -> None:
        with opened as events:
            while True:
                is_over, waiting, asked = self._is_over, self._waiting, time.monotonic()
                found: Sequence[FileEvent] = ()
                try:
                    found = events.next(0 if is_over or waiting else REST_SECONDS if self._fresh else WAKE_SECONDS)
                    if found:
                        self._process(found, events)
                    else:
                        self._life.all_is_read(asked)
                except StorageError as error:  # no watch is left for a new folder
                    self._go_blind(error)
                self._rest()
                if not found:
                    if waiting is not None:
                        self._waiting = None
                        waiting.set()
                    elif is_over or self.why_blind:
                        return

    def _rest(self) -> None:
        """Take what waits for a sign of life, or for the time to be written down; at most every 50 ms."""
        if time.monotonic() < self._next_rest and not self._is_over:
            return
        self._next_rest = time.monotonic() + REST_SECONDS
        self._take([])
        self._on_rest()

    def _process(self, first: Sequence[FileEvent], events: FileEvents) -> None:
        for event in first:
            self.on_event(event)
        batch = self._gather(first, events)
        for event in batch.events:  # those that came meanwhile too
            self.on_event(event)
        moments, late = self._learn(batch)
        for moment in late:
            self._on_moment(moment)
        self._take(moments)

    def _gather(self, first: Sequence[FileEvent], events: FileEvents) -> Batch:
        return self._reader.gather(first, events, self._unsettled)

    def _take(self, moments: Sequence[Moment]) -> None:
        for moment in self._trusted(moments):
            self._on_moment(moment)

    def _go_blind(self, error: StorageError) -> None:
        """Forget what was learned: from now on nothing is."""
        with self._lock:
            self._forget_all()
            self.why_blind = str(error)
