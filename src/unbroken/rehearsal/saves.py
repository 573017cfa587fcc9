"""Find from file events when a save of the program is being written, and when a checkpoint is made of it.

The files of a save are those that have the names of files in a checkpoint, and those that are renamed to or from one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from unbroken.program.contract import FINAL
from unbroken.store.checkpoint import PARTS, Checkpoint
from unbroken.system.file_events import FileEvent, Happened

_DIGITS = re.compile(r"\d+")
_CHECKPOINT = re.compile(r"results/[^/]+/checkpoints/\d{6,}_[^/]*")
# Here are checkpoints and results, which unbroken makes itself.
_MADE = re.compile(r"(?:results/[^/]+/(?:checkpoints|final|parts|live|pieces|segments)|logs|\.snakemake)/.*", re.DOTALL)
# What lies there in a checkpoint is a piece of the result.
_RESULTS = (PARTS, FINAL)


@dataclass
class SaveWatch:
    """Follow the saves of a program."""

    writing: str = ""  # the newest file of a save that was seen growing since `note` was called
    published: int = 0  # how many checkpoints were made
    _names: set[str] = field(default_factory=set)  # of files in checkpoints, each number as 0
    _drafts: set[str] = field(default_factory=set)  # paths of files that get or had such a name, each number as 0
    _always_open: set[str] = field(default_factory=set)  # names of files that stay open from save to save
    _open: dict[str, int] = field(default_factory=dict)  # paths, and how many checkpoints there were when they opened
    _moving: dict[int, str] = field(default_factory=dict)
    _has_grown: bool = False  # since the last checkpoint

    def learn(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Add the names of the files that checkpoints hold."""
        paths = [PurePosixPath(name) for each in checkpoints for name in each.passport.files]
        self._names |= {_plain(path.name) for path in paths if path.parts[0] not in _RESULTS}

    def begin(self) -> None:
        """Forget which files are open: another process writes from now on."""
        self.writing = ""
        self._open.clear()
        self._moving.clear()

    def note(self, events: Iterable[FileEvent]) -> None:
        """Add what these events say."""
        self.writing = ""
        for event in events:
            what, name = event.what, event.name
            if what & Happened.MOVED_TO:
                self._end_move(name, self._moving.pop(event.cookie, ""))
            elif what & (Happened.MOVED_FROM | Happened.DELETED):
                self._open = {path: at for path, at in self._open.items() if not f"{path}/".startswith(f"{name}/")}
                if what & Happened.MOVED_FROM:
                    self._moving[event.cookie] = name
            elif what & Happened.CLOSED and self._is_named(name):
                self._open.pop(name, None)
            elif what & Happened.WRITTEN and self.is_state(name):
                self._open.setdefault(name, self.published)
                self.writing, self._has_grown = name, True

    def is_over(self, name: str) -> bool:
        """Return True if a file was renamed, or closed under its last name, since it grew."""
        return name not in self._open

    def is_state(self, name: str) -> bool:
        """Return True if a file belongs to a save; one that stays open all the time only where there is no other."""
        return not _MADE.fullmatch(name) and (self._is_named(name) or _plain(name) in self._drafts)

    def _is_named(self, name: str) -> bool:
        return _plain(PurePosixPath(name).name) in (self._names - self._always_open or self._names)

    def _end_move(self, name: str, before: str) -> None:
        if _CHECKPOINT.fullmatch(name):
            still_open = [path for path, since in self._open.items() if since < self.published]
            self._always_open |= {_plain(PurePosixPath(path).name) for path in still_open}
            self.published += 1
            if not self._has_grown:  # its files were written in a new folder before that was watched
                self.writing = before or name
            self._has_grown = False
        elif before and not _MADE.fullmatch(name):
            if self._is_named(name):
                self._drafts.add(_plain(before))
            elif self.is_state(before):  # the save before, under another name
                self._drafts.add(_plain(name))


def _plain(name: str) -> str:
    return _DIGITS.sub("0", name)
