"""Jobs that are handed over again after a while, such as when the controller does not answer."""

from __future__ import annotations

import threading
import time
from typing import Any


class Later:
    """A list with a time for each entry; two threads use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: list[tuple[float, Any]] = []

    def add(self, seconds: float, job: Any) -> None:
        """Hands the job out again after so many seconds."""
        with self._lock:
            self._jobs.append((time.monotonic() + seconds, job))

    def due(self) -> list[Any]:
        """The jobs whose time has come; each is handed out once."""
        now = time.monotonic()
        with self._lock:
            due = [job for when, job in self._jobs if when <= now]
            self._jobs = [(when, job) for when, job in self._jobs if when > now]
        return due

    def all(self) -> list[Any]:
        """All jobs; each is handed out once."""
        with self._lock:
            jobs = [job for _, job in self._jobs]
            self._jobs = []
        return jobs

    def seconds_to_next(self) -> float | None:
        """How long until the first is due; None if there is none."""
        with self._lock:
            return max(0.0, min(when for when, _ in self._jobs) - time.monotonic()) if self._jobs else None
