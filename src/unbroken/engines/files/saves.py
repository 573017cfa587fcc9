"""Learns from the events of state files how a program saves: which are written together, and when all of them are."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

_WILD = re.compile(r"[*?\[{]")
_DIGITS = re.compile(r"\d+")
# Without a second save to compare with, files that were written together are complete when nothing came for so long.
FIRST_QUIET_SECONDS = 2.0
# With one, after so long; a program that never rests so long is taken at the moment of its last file.
QUIET_SECONDS = 0.1


class SaveCycle:
    """The order in which state files are completed; a name that comes again begins the next save.

    Files whose names differ in numbers alone are one file: `step-100.pt`, `step-200.pt`.  `known` are the names of an
    earlier save, or of the only files that there can be.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._current: list[str] = []
        self._learned = frozenset(_DIGITS.sub("#", name) for name in known)
        self._last = 0.0
        self.saves = 0

    def note(self, name: str) -> None:
        """Take the next completed state file."""
        key = _DIGITS.sub("#", name)
        if key in self._current:
            self._learned = frozenset(self._current)
            self._current = []
            self.saves += 1
        self._current.append(key)
        self._last = time.monotonic()

    def is_complete(self, is_restless: bool) -> bool:
        """Return True if no file of the last save is missing; `is_restless` skips the wait for a quiet moment."""
        if not self._current:
            return False
        quiet = time.monotonic() - self._last
        if self._learned and self._learned <= set(self._current):
            return is_restless or quiet >= QUIET_SECONDS
        return quiet >= FIRST_QUIET_SECONDS


def literal_names(globs: Iterable[str]) -> tuple[str, ...]:
    """Return the names that the globs mean, if none of them has a wildcard; else nothing."""
    names = tuple(globs)
    return () if any(_WILD.search(name) for name in names) else names
