"""Make folders survive a power loss, also where there are a hundred thousand files in them.

Each file is flushed by itself: only fsync says of a file whether its own data arrived, on a file server too.  Each is a
commit of the file system's journal, or a round trip to a server, so of many files several are flushed at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# From so many on threads are worth their start.
MANY = 256
_AT_A_TIME = 16


def flush_tree(folder: Path) -> None:
    """Flush every file and folder below, then the folder itself; raise OSError with what did not reach the disk."""
    flush_paths(list(_flushed(str(folder))))


def flush_paths(paths: list[str]) -> None:
    """Flush files and folders, the last one after all others, which readers look for; OSError as above."""
    if len(paths) < MANY:
        for path in paths:
            _fsync(path)
        return
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        for _ in pool.map(_fsync, paths[:-1]):
            pass
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
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(descriptor)
