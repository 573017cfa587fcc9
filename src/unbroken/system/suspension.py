"""Notice that this process was stopped for a while (`scontrol suspend`, SIGSTOP); standard library alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LOOK_SECONDS = 1.0
# A thread that wakes so much later than it should was stopped; a busy machine is not so late.
SUSPENDED_SECONDS = 5.0


class SuspensionWatch:
    """Look at the clock once a second, from `start` to `stop`; each query looks as well, so it never lags.

    `note` receives the begin and the end of each suspension, as `time.monotonic()`, to a second.
    """

    def __init__(self, note: Callable[[float, float], None] = lambda begin, end: None) -> None:
        self._note = note
        self._found: list[tuple[float, float]] = []
        self._due = float("inf")
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="suspensions", daemon=True)

    def start(self) -> None:
        self._due = time.monotonic() + LOOK_SECONDS
        self._thread.start()

    def stop(self) -> None:
        """Look for the last time, and end the thread."""
        self._look()
        with self._lock:
            self._is_over.set()

    def clock(self) -> float:
        """Return `time.monotonic()` without the time in which this process was stopped."""
        self._look()
        return time.monotonic() - sum(end - begin for begin, end in self._found)

    def seconds_between(self, begin: float, end: float) -> float:
        """Return how long it was stopped between two moments of `time.monotonic()`."""
        self._look()
        return sum(max(min(until, end) - max(since, begin), 0.0) for since, until in self._found)

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            self._look(is_due=True)

    def _look(self, is_due: bool = False) -> None:
        with self._lock:
            now, due = time.monotonic(), self._due
            is_late = now - due > SUSPENDED_SECONDS and not self._is_over.is_set()
            if is_late:
                self._found.append((due, now))
            if is_late or is_due:
                self._due = now + LOOK_SECONDS
        if is_late:
            self._note(due, now)
