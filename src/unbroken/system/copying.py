"""Copies parts of files, inside the file system where it can do that."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

from unbroken.errors import CheckpointError
from unbroken.system import fs


def copy_head(source: Path, target: Path, size_bytes: int) -> None:
    """Copy the first bytes of a file; raise CheckpointError if it is shorter."""
    with target.open("wb") as new:
        append_range(source, new, 0, size_bytes)


def append_range(source: Path, target: BinaryIO, begin: int, end: int) -> None:
    """Append these bytes to an open file and keep holes as holes; raise CheckpointError if the source has fewer."""
    target.flush()
    with source.open("rb", buffering=0) as old:
        at = begin
        while at < end:
            try:
                at += append_part(source, old.fileno(), target.fileno(), at, end)
            except OSError as error:  # the kernel names no file
                raise OSError(error.errno, error.strerror, str(source), None, str(target.name)) from error


def append_part(source: Path, old: int, new: int, at: int, end: int) -> int:
    """Append a hole, or data up to the next one; return how many bytes."""
    data = _next_data(source, old, at, end)
    if data > at:
        os.ftruncate(new, os.lseek(new, data - at, os.SEEK_CUR))
        return data - at
    until = min(end, os.lseek(old, at, os.SEEK_HOLE))
    os.lseek(old, at, os.SEEK_SET)
    done = fs.copy_range(old, new, max(until - at, 1))
    if done == 0:
        raise CheckpointError(f"{source}: {at} bytes, {end} are needed")
    return done


def _next_data(source: Path, descriptor: int, at: int, end: int) -> int:
    """Return where data begins; `end` at most, and not behind the end of the file [lseek(2), SEEK_DATA]."""
    try:
        return min(end, os.lseek(descriptor, at, os.SEEK_DATA))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    size = os.fstat(descriptor).st_size
    if size < end:
        raise CheckpointError(f"{source}: {size} bytes, {end} are needed")
    return end
