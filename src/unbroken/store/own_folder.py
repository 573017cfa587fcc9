"""Confirm that the folders of a run are its own: what has replaced one is neither moved nor removed.

A program can replace a folder of ours by a link, to a scratch disk for example, or mount something there.  Code that
uses the path alone then moves and removes what lies there, which is not ours.  Only a run's root may be a link.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from unbroken.errors import ForeignFolderError
from unbroken.system import fs

_ADVICE = (
    "a run's folders stay where unbroken made them: let the program write into them, and link only the run's whole "
    "folder to another place"
)
_OPEN = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def confirm_own(path: Path, inode: int | None = None) -> None:
    """Raise ForeignFolderError if `path` is a link, no folder, a mounted file system, or another folder than noted."""
    with _foreign_folders(path):
        found = os.open(path, _LOOK | os.O_NOFOLLOW)
    try:
        if inode is not None and os.fstat(found).st_ino != inode:
            raise ForeignFolderError(_foreign(path))
        parent = os.open(path.parent, _LOOK)
        try:
            if fs.mount_of(found) != fs.mount_of(parent):
                raise ForeignFolderError(_said(path, "another file system, mounted there"))
        finally:
            os.close(parent)
    finally:
        os.close(found)


def confirm_all_own(folders: Iterable[Path]) -> None:
    """Call `confirm_own` for each of these folders that exists."""
    for path in folders:
        if os.path.lexists(path):
            confirm_own(path)


class HeldFolder:
    """Hold a folder open: what is done through it is done in there, whatever its path leads to by now.

    ForeignFolderError if the path leads to a link, to no folder, or to another file system than its parent's.
    """

    def __init__(self, path: Path, parent: HeldFolder | None = None) -> None:
        self.path, self._descriptor = path, -1
        name, descriptor = (path, None) if parent is None else (path.name, parent._descriptor)
        with _foreign_folders(path):
            self._descriptor = os.open(name, os.O_RDONLY | _OPEN, dir_fd=descriptor)
        self.confirm()

    @property
    def inode(self) -> int:
        """Return the number of the folder in its file system; no other one gets it while this is open."""
        return os.fstat(self._descriptor).st_ino

    def confirm(self) -> None:
        """Raise ForeignFolderError if something else has replaced it."""
        confirm_own(self.path, self.inode)

    def names(self) -> list[str]:
        """Return what is in it, in no order."""
        return os.listdir(self._descriptor)

    def is_folder(self, name: str) -> bool:
        """Return True for a folder in it, False for a link to one."""
        return stat.S_ISDIR(self._mode(name))

    def is_link(self, name: str) -> bool:
        """Return True for a link in it."""
        return stat.S_ISLNK(self._mode(name))

    def below(self, name: str) -> HeldFolder:
        """Open a folder in it."""
        return HeldFolder(self.path / name, self)

    def move_out(self, name: str, target: Path) -> None:
        """Rename what is in it, a link as the link that it is; an error names the whole path."""
        try:
            os.rename(name, target, src_dir_fd=self._descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path / name)) from error

    def close(self) -> None:
        """Give the descriptor back; twice is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> HeldFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _mode(self, name: str) -> int:
        try:
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mode
        except FileNotFoundError:  # its owner has just taken it away
            return 0


@contextmanager
def _foreign_folders(path: Path) -> Iterator[None]:
    """Turn the errors by which open(2) refuses a link, or what is no folder, into ForeignFolderError."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENOTDIR, errno.ENOENT}:
            raise
        raise ForeignFolderError(_foreign(path)) from error


def _foreign(path: Path) -> str:
    if path.is_symlink():
        return _said(path, f"a link to {os.readlink(path)}")
    if not path.exists():
        return f"{path}: gone; {_ADVICE}"
    return _said(path, "another folder than the one that unbroken made" if path.is_dir() else "no folder")


def _said(path: Path, found: str) -> str:
    """Return what stands there, and what to do."""
    return f"{path}: {found}; nothing there was touched; {_ADVICE}"
