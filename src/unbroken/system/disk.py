"""Say how much space is left on a disk, and tell a full one, one without rights and a silent one apart."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from unbroken.errors import StorageError

FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT}
# What a user can fix by freeing space or giving rights; anything else is a mistake of ours and keeps its traceback.
STORAGE_ERRNOS = FULL_ERRNOS | {errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG, errno.EXDEV}
# The disk, the file server or the network to it does not answer: that may pass, and says nothing of the file.
# EKEYEXPIRED is what NFS says without a ticket.
_OUTAGES = (
    "EIO ESTALE ENOTCONN ESHUTDOWN ETIMEDOUT EREMOTEIO ENOLINK EHOSTDOWN EHOSTUNREACH ENETDOWN ENETRESET ENETUNREACH "
    "ECONNABORTED ECONNREFUSED ECONNRESET EKEYEXPIRED"
)
# Not all systems have all of them.
OUTAGE_ERRNOS = frozenset(getattr(errno, name) for name in _OUTAGES.split() if hasattr(errno, name))
UNTOUCHED = "earlier checkpoints are untouched"
PASSING = "wait until that is over"
# As a program of any kind ends with them; other errors of a disk it may mean of something else.
_STORAGE_WORDS = tuple(os.strerror(code) for code in (*FULL_ERRNOS, errno.EROFS, errno.EIO, errno.ESTALE))
# With less than that on its disk no segment gets anywhere, and Snakemake's own notes are torn.
FULL_BYTES = 1024 * 1024
# The free space where it is not counted.
UNCOUNTED = sys.maxsize


def free_bytes(path: Path) -> int:
    """Return what an ordinary user may still write on the file system of `path`, or of its nearest parent that exists.

    `UNCOUNTED` where it has no number of blocks at all, which is not "none free": FUSE without statfs(2), a tmpfs
    without a limit.
    """
    while not path.exists() and path != path.parent:
        path = path.parent
    state = os.statvfs(path)
    return state.f_bavail * state.f_frsize if state.f_blocks else UNCOUNTED


def first_full(folders: Iterable[Path]) -> str:
    """Return one line on the first of these folders whose file system is full; empty if none is, or does not say so."""
    for folder in folders:
        with suppress(OSError):
            if found := full_words(folder.resolve()):
                return f"{found}; remove what you do not need (type: df -h {folder.resolve()}) and start again"
    return ""


def full_words(folder: Path, needed_bytes: int = 0) -> str:
    """Return a line that the file system of `folder` is full, with the bytes; empty if it has more space.

    Raise OSError if the file system does not say how much space it has.
    """
    free, needed = free_bytes(folder), max(needed_bytes, FULL_BYTES)
    if free > needed:
        return ""
    return f"{folder}: the disk is full, {free:,} bytes free, at least {needed - free:,} missing"


def storage_error(path: Path, needed_bytes: int, error: OSError) -> StorageError:
    """Return the error in one line, with the path, and of a full disk with the bytes that are missing."""
    line = f"{error.filename or path}: {error.strerror}"
    if error.errno in FULL_ERRNOS:
        line = f"{error.filename2 or error.filename or path}: {error.strerror}"  # the second one is what a copy writes
        free = free_bytes(path)
        missing = max(needed_bytes - free, 0)
        if free != UNCOUNTED:
            line += f"; {needed_bytes:,} bytes needed, {free:,} free, {missing:,} missing"
            is_full = not free and error.errno == errno.ENOSPC
            line += "" if missing or is_full else ": a quota, or the number of files, is used up"
        return StorageError(f"{line}; {UNTOUCHED}", todo="free room")
    advice = {errno.EXDEV: "keep the run's folder on one file system", errno.EIO: PASSING}
    return StorageError(f"{line}; {UNTOUCHED}", todo=advice.get(error.errno or 0, "make it writable"))


def is_full(error: OSError) -> bool:
    """Return True if there is no space, or a quota is used up; of a whole tree (shutil.Error) if it was so anywhere."""
    if isinstance(error, shutil.Error):
        return any(os.strerror(code) in str(error) for code in FULL_ERRNOS)
    return error.errno in FULL_ERRNOS


def reports_storage(text: str) -> bool:
    """Return True if a program reports a disk that is full, read-only or fails; free bytes show no quota."""
    return any(words in text for words in _STORAGE_WORDS)
