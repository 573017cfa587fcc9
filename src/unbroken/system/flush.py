"""Folders whose files all survive a power loss, also where there are a hundred thousand of them.

A few files are flushed one by one.  Each of those is a commit of the file system's journal, or a round trip to a file
server; so of many files

- on ext4 and XFS the whole file system is flushed once (syncfs), and then each file is asked whether its own data
  arrived: syncfs alone may not say it, if another process got the error first.  That question (sync_file_range with
  SYNC_FILE_RANGE_WAIT_BEFORE) answers what fsync would, and writes nothing [Linux: fs/sync.c; since 4.14];
- anywhere else each file is flushed by itself, several at a time: what syncfs means on a file server is the server's
  secret, and FUSE does not pass it on.
"""

from __future__ import annotations

import ctypes
import functools
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# So many are worth waiting for what other programs have on its way to the same disk.
MANY = 256
_AT_A_TIME = 16
_WHOLE_AT_ONCE = {"ext4", "xfs"}
_WAIT_BEFORE = 1


def flush_tree(folder: Path) -> None:
    """Flush every file and folder below, then the folder itself; raise OSError with what did not reach the disk."""
    flush_paths(folder, list(_flushed(str(folder))))


def flush_paths(folder: Path, paths: list[str]) -> None:
    """Flush files and folders below `folder`, the last one after all others; OSError as above."""
    if len(paths) < MANY:
        for path in paths:
            _fsync(path)
        return
    device = os.stat(folder).st_dev
    if _flush_file_system(folder, device):
        for path in paths:
            _confirm(path, device)
        # XFS empties the disk's own cache with its log, which may have had nothing to write; an fsync does in any case.
        _fsync(next((path for path in paths if _is_plain(path, device)), paths[-1]))
    else:
        _in_threads(_fsync, paths[:-1])
    _fsync(paths[-1])


def _flushed(folder: str) -> Iterator[str]:
    """Yield the files and folders below in order of name, each folder after all that is in it."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir():
            yield from _flushed(entry.path)
        else:
            yield entry.path
    yield folder


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _named(os.fsync, descriptor, path)
    finally:
        os.close(descriptor)


def _confirm(path: str, device: int) -> None:
    """Raise OSError if the data of a file did not reach the disk; flush it if it is on another file system."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        is_elsewhere = os.fstat(descriptor).st_dev != device
        _named(os.fsync if is_elsewhere else _wait_for_data, descriptor, path)
    finally:
        os.close(descriptor)


def _is_plain(path: str, device: int) -> bool:
    state = os.lstat(path)
    return stat.S_ISREG(state.st_mode) and state.st_dev == device


def _named(flush: Callable[[int], None], descriptor: int, path: str) -> None:
    try:
        flush(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _in_threads(flush: Callable[[str], None], paths: list[str]) -> None:
    """Flush files and folders in any order; readers look for the top one, which the caller flushes last."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        for _ in pool.map(flush, paths):
            pass


def _flush_file_system(folder: Path, device: int) -> bool:
    """Return False if that is not possible, not reliable here, or failed: each file must then be flushed by itself."""
    if "syncfs" not in _calls() or _type_of(device) not in _WHOLE_AT_ONCE:
        return False
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return _calls()["syncfs"](descriptor) == 0
    finally:
        os.close(descriptor)


def _wait_for_data(descriptor: int) -> None:
    if _calls()["sync_file_range"](descriptor, 0, 0, _WAIT_BEFORE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@functools.cache
def _calls() -> dict[str, Callable[..., int]]:
    """Return two calls that Python lacks, by name; none where one is missing, or the kernel is too old for them."""
    library = ctypes.CDLL(None, use_errno=True)
    if not (hasattr(library, "syncfs") and hasattr(library, "sync_file_range")) or _kernel() < (4, 14):
        return {}
    library.syncfs.argtypes = [ctypes.c_int]
    library.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return {"syncfs": library.syncfs, "sync_file_range": library.sync_file_range}


def _kernel() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(filter(str.isdigit, minor)) or 0)


def _type_of(device: int) -> str:
    """Return the type of a mounted file system, as `ext4`; '' if unknown [man proc_pid_mountinfo: fields 3 and 9]."""
    name = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    kinds = {line.partition(" - ")[2].split()[0] for line in lines if line.split()[2] == name}
    return kinds.pop() if len(kinds) == 1 else ""
