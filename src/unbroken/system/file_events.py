"""Watch the files below a folder by the kernel's events (inotify(7)); Linux alone has them."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

from unbroken.errors import StorageError

_HEAD = struct.Struct("iIII")
_READ_BYTES = 64 * 1024


class Happened(IntFlag):
    """Kinds of events, with the kernel's numbers (linux/inotify.h)."""

    FOUND = 0x1  # none of the kernel's that is asked for: the file was there when its folder was first watched
    WRITTEN = 0x2
    CLOSED = 0x8  # by a process that might have written
    MOVED_FROM = 0x40
    MOVED_TO = 0x80
    CREATED = 0x100
    DELETED = 0x200
    OVERFLOW = 0x4000
    IGNORED = 0x8000
    IS_FOLDER = 0x40000000


_ASKED = Happened(0x2 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200)


@dataclass(frozen=True)
class FileEvent:
    """One event; `name` is relative to the folder that is watched.  Two halves of a move have the same `cookie`."""

    what: Happened
    name: str
    cookie: int


class FileEvents:
    """Yield the events below `root`, folders that come later included, in the order in which they happened.

    `is_watched` gets a folder below `root` and says whether it is watched, and so those below it.  The first events of
    a folder that was just made may be missed; the files in it are then reported as created, and found.  Those in a
    folder that is renamed are reported as renamed with it.  If the kernel's queue was full, an event OVERFLOW without a
    name stands where others are missing.
    `also` are files and folders elsewhere, whose events come under the names that they have there.
    StorageError if the kernel has no instance or no watch left (fs.inotify.max_user_instances, max_user_watches).
    """

    def __init__(
        self, root: Path, is_watched: Callable[[str], bool] = lambda _: True, also: Mapping[str, Path] | None = None
    ) -> None:
        self.root, self._is_watched, self._also = root, is_watched, also or {}
        self._library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise self._failed()
        self._folders: dict[int, str] = {}
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._woken, select.POLLIN)
        try:
            self._waiting = [event for name in ("", *self._also) for event in self._watch(name)]
        except StorageError:
            self.__exit__()
            raise

    def __enter__(self) -> FileEvents:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
        os.close(self._woken)

    def wake(self) -> None:
        """Let a `next` that waits in another thread return at once."""
        os.eventfd_write(self._woken, 1)

    def next(self, seconds: float) -> list[FileEvent]:
        """Return the events since the last call; wait at most so many seconds for one."""
        found, self._waiting = self._waiting, []
        if found or self._poll.poll(max(0.0, seconds) * 1000):
            found += list(self._read())
            with suppress(BlockingIOError):
                os.eventfd_read(self._woken)
        return found

    def put_back(self, events: Sequence[FileEvent]) -> None:
        """Return these events again by the next call."""
        self._waiting = [*events, *self._waiting]

    def _read(self) -> Iterator[FileEvent]:
        while True:
            try:
                data = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                number, mask, cookie, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size
                name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
                at += length
                yield from self._event(number, Happened(mask), cookie, name)

    def _event(self, number: int, what: Happened, cookie: int, name: str) -> Iterator[FileEvent]:
        if what & Happened.OVERFLOW:
            yield FileEvent(what, "", 0)
            yield from (event for each in ("", *self._also) for event in self._watch(each))  # folders were missed
        if number not in self._folders or not (name or self._folders[number] in self._also):
            return
        path = os.path.join(self._folders[number], name) if name else self._folders[number]
        if not name and what & Happened.IGNORED:
            return
        yield FileEvent(what, path, cookie)
        if not what & Happened.IS_FOLDER:
            return
        if what & Happened.MOVED_FROM:  # it is watched on, and has a new name when it arrives
            self._folders = {at: each for at, each in self._folders.items() if not f"{each}/".startswith(f"{path}/")}
        elif what & Happened.MOVED_TO:
            yield from self._watch(path, Happened.MOVED_TO)
        elif what & Happened.CREATED:
            yield from self._watch(path)

    def _watch(self, name: str, what: Happened = Happened.CREATED | Happened.FOUND) -> Iterator[FileEvent]:
        """Watch a folder and those in it, and report the files that are in it by then."""
        if name and name not in self._also and not self._is_watched(name):
            return
        folder = self.path_of(name)
        number = self._library.inotify_add_watch(self._descriptor, os.fsencode(folder), int(_ASKED))
        if number < 0:
            if ctypes.get_errno() in (errno.ENOENT, errno.ENOTDIR):  # it is gone already
                return
            raise self._failed()
        self._folders[number] = name
        try:
            entries = list(os.scandir(folder))
        except OSError:
            return
        for entry in entries:
            path = os.path.join(name, entry.name)
            if entry.is_dir(follow_symlinks=False):
                yield from self._watch(path, what)
            else:
                yield FileEvent(what, path, 0)

    def path_of(self, name: str) -> Path:
        """Return where the file of an event lies."""
        first, _, rest = name.partition("/")
        return self._also[first] / rest if first in self._also else self.root / name

    def _failed(self) -> StorageError:
        return StorageError(f"{self.root}: cannot be watched: {os.strerror(ctypes.get_errno())}")
