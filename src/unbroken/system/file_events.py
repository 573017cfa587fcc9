"""What happens to files below a folder, as the kernel tells it (inotify(7)); Linux alone has that."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

from unbroken.errors import StorageError

_HEAD = struct.Struct("iIII")
_READ_BYTES = 64 * 1024


class Happened(IntFlag):
    """Kinds of events, with the kernel's numbers (linux/inotify.h)."""

    WRITTEN = 0x2
    CLOSED = 0x8  # by somebody who might have written
    MOVED_FROM = 0x40
    MOVED_TO = 0x80
    CREATED = 0x100
    DELETED = 0x200
    OVERFLOW = 0x4000
    IS_FOLDER = 0x40000000


_ASKED = Happened(0x2 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200)


@dataclass(frozen=True)
class FileEvent:
    """One event; `name` is relative to the folder that is watched.  Two halves of a move have the same `cookie`."""

    what: Happened
    name: str
    cookie: int


class FileEvents:
    """The events below `root`, folders that come later included, in the order in which they happened.

    Of a folder that has just been made the first events may be missed; what it holds then is told as created.
    StorageError if the kernel watches nothing more (fs.inotify.max_user_watches).
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise self._failed()
        self._folders: dict[int, str] = {}
        self._moving: dict[int, str] = {}
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._waiting = list(self._watch(""))

    def __enter__(self) -> FileEvents:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def next(self, seconds: float) -> list[FileEvent]:
        """What has happened since the last call; waits so long for something."""
        found, self._waiting = self._waiting, []
        if found or self._poll.poll(max(0.0, seconds) * 1000):
            found += list(self._read())
        return found

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
        if number not in self._folders or not name:
            return
        path = os.path.join(self._folders[number], name)
        yield FileEvent(what, path, cookie)
        if not what & Happened.IS_FOLDER:
            return
        if what & Happened.MOVED_FROM:
            self._moving[cookie] = path
        elif what & Happened.MOVED_TO and cookie in self._moving:
            self._rename(self._moving.pop(cookie), path)
        elif what & (Happened.CREATED | Happened.MOVED_TO):
            yield from self._watch(path)

    def _rename(self, before: str, after: str) -> None:
        """What follows is told by the new name."""
        for number, name in self._folders.items():
            if name == before or name.startswith(f"{before}/"):
                self._folders[number] = after + name[len(before) :]

    def _watch(self, name: str) -> Iterator[FileEvent]:
        """Watches a folder and those in it; what is in it by then may have been made before it was watched."""
        number = self._library.inotify_add_watch(self._descriptor, os.fsencode(self.root / name), int(_ASKED))
        if number < 0:
            if ctypes.get_errno() in (errno.ENOENT, errno.ENOTDIR):  # it is gone already
                return
            raise self._failed()
        self._folders[number] = name
        try:
            entries = list(os.scandir(self.root / name))
        except OSError:
            return
        for entry in entries:
            path = os.path.join(name, entry.name)
            if entry.is_dir(follow_symlinks=False):
                yield from self._watch(path)
            else:
                yield FileEvent(Happened.CREATED, path, 0)

    def _failed(self) -> StorageError:
        return StorageError(f"{self.root}: cannot be watched: {os.strerror(ctypes.get_errno())}")
