"""Restart files held open from one look to the next, which shows whether the program writes them in place.

A file that was written under another name and renamed never changes again; its successor is another file.  While a file
is open no other one gets its inode number, so that what is seen through it is of that very file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from unbroken.engines.files.states import RestartState, Stamp
from unbroken.system import fs

# Of a state with more files, and of more states, nothing is held: a process may have 1024 files open.
MOST_FILES = 64
MOST_STATES = 4


@dataclass(frozen=True)
class Change:
    """A file that was written while it had its name."""

    name: str
    bytes_before: int
    bytes_after: int

    def __str__(self) -> str:
        sizes = f"{self.bytes_before:,} bytes, then {self.bytes_after:,}"
        return sizes if self.bytes_before != self.bytes_after else f"{sizes}, with another time of change"


class OpenState:
    """The files of a state as they were at one moment, whatever has their names by now."""

    def __init__(self, state: RestartState, files: Mapping[str, int]) -> None:
        self.state = state
        self._files = dict(files)

    def __del__(self) -> None:
        self.close()

    @property
    def stamps(self) -> Mapping[str, Stamp]:
        """How the files were when they were opened."""
        return self.state.complete_stamps or {}

    def close(self) -> None:
        """Gives the descriptors back; twice is fine."""
        while self._files:
            os.close(self._files.popitem()[1])

    def change(self) -> Change | None:
        """What was written in place since; None if nothing was.  OSError if a file server lost a file."""
        for name, descriptor in self._files.items():
            now, before = _stamp(descriptor), self.stamps[name]
            if now[1:] != before[1:]:
                return Change(name, before[1], now[1])
        return None

    def has_its_names(self) -> bool:
        """True as long as nothing else has taken the place of its files."""
        return self.state.stamps == self.stamps

    def copy(self, draft: Path) -> bool:
        """Copies the files to a new folder; False, and nothing there, if they were written meanwhile."""
        for name, descriptor in self._files.items():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            _copy(descriptor, draft / name)
        if self.change() is None:
            return True
        fs.remove_tree(draft)
        return False


class OpenStates:
    """The newest states of a program that is at work, each by the number in its names."""

    def __init__(self) -> None:
        self._open: dict[str, OpenState] = {}

    def look(
        self, found: Callable[[], Iterable[RestartState]], is_due: bool
    ) -> tuple[dict[str, OpenState], Change | None]:
        """The states that stayed as they are since the last look, and one that did not.

        `found` gives the states that are there now.  They are opened, for the next look; where nothing is to be copied
        yet, only if those that are open have lost their names.  The ones returned are good until the next look.
        """
        change, same = None, {}
        for number, state in self._open.items():
            try:
                changed = state.change()
            except OSError:  # ESTALE: replaced from another node
                continue
            change = change or changed
            if changed is None:
                same[number] = state
        if is_due or not same or not all(state.has_its_names() for state in same.values()):
            self._open = self._opened(found(), same)
        return same, change

    def close(self) -> None:
        """Gives everything back."""
        for state in self._open.values():
            state.close()
        self._open = {}

    def _opened(self, found: Iterable[RestartState], same: Mapping[str, OpenState]) -> dict[str, OpenState]:
        opened: dict[str, OpenState] = {}
        for state in found:
            if len(opened) == MOST_STATES or not is_held(state):
                break
            known = same.get(state.number)
            new = known if known is not None and known.has_its_names() else open_state(state)
            if new is not None:
                opened[state.number] = new
        return opened


def is_held(state: RestartState) -> bool:
    """False for a state of too many files."""
    return len(state.files) <= MOST_FILES


def open_state(state: RestartState) -> OpenState | None:
    """The state, held open; None if a file of it was replaced just now."""
    files: dict[str, int] = {}
    stamps: dict[str, Stamp] = {}
    try:
        for name in state.files:
            files[name] = os.open(state.folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            stamps[name] = _stamp(files[name])
    except OSError:
        OpenState(state, files).close()
        return None
    opened = OpenState(replace(state, complete_stamps=stamps), files)
    if opened.has_its_names():
        return opened
    opened.close()
    return None


def _stamp(descriptor: int) -> Stamp:
    found = os.fstat(descriptor)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _copy(descriptor: int, target: Path) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with target.open("wb") as new:
        while fs.copy_range(descriptor, new.fileno(), 1 << 30):
            pass
