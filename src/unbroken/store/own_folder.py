"""Confirm that the folders of a run are its own: what has replaced one is neither moved nor removed.

A program can replace a folder of ours by a link, to a scratch disk for example, or mount something there.  Code that
uses the path alone then moves and removes what lies there, which is not ours.  Only a run's root may be a link.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from unbroken.errors import ForeignFolderError
from unbroken.system import fs

_ADVICE = (
    "a run's folders stay where unbroken made them: let the program write into them, and link only the run's whole "
    "folder to another place"
)
OPEN_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def confirm_own(path: Path, inode: int | None = None) -> None:
    """Raise ForeignFolderError if `path` is a link, no folder, a mounted file system, or another folder than noted."""
    with foreign_folders(path):
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


@contextmanager
def foreign_folders(path: Path) -> Iterator[None]:
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
