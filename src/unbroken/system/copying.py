"""Copy files or parts of them, inside the file system where it can do that; holes stay holes."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import BinaryIO

from unbroken.errors import CheckpointError

# ioctl_ficlone(2): on XFS, Btrfs and others.
_FICLONE = 0x40049409
_COPY_BYTES = 4 * 1024 * 1024


def link_or_copy(source: Path | str, target: Path | str) -> None:
    """Link a file that no process writes any more to a second name; copy it where there are no hard links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target)


def clone_or_link(source: Path, target: Path) -> None:
    """Make a copy that shares its blocks where the file system can do that; else a second name; else a plain copy."""
    import fcntl  # only Unix has it, and training by hand does without

    with source.open("rb") as old, target.open("xb") as new:
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
            shutil.copystat(source, target)
            return
        except OSError:
            pass
    target.unlink()
    link_or_copy(source, target)


def copy_file(source: Path, target: Path) -> None:
    """Make a copy of a plain file with its permissions and times; raise FileExistsError if `target` exists."""
    with source.open("rb", buffering=0) as old:
        copy_open_file(source, old.fileno(), target)


def copy_open_file(source: Path, descriptor: int, target: Path) -> None:
    """Copy a file, as `copy_file` does, from a descriptor, whatever has the source's name by now."""
    found, at = os.fstat(descriptor), 0
    with target.open("xb", buffering=0) as new:
        try:
            while done := _append_part(descriptor, new.fileno(), at, found.st_size):
                at += done
        except OSError as error:
            raise _named(error, source, target) from error
        os.fchmod(new.fileno(), found.st_mode & 0o7777)
        os.utime(new.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))


def copy_head(source: Path, target: Path, size_bytes: int) -> None:
    """Copy the first bytes of a file; raise CheckpointError if it is shorter."""
    with target.open("wb") as new:
        append_range(source, new, 0, size_bytes)


def append_range(source: Path, target: BinaryIO, begin: int, end: int) -> None:
    """Append these bytes to an open file; raise CheckpointError if the source has fewer."""
    target.flush()
    with source.open("rb", buffering=0) as old:
        at = begin
        while at < end:
            try:
                at += append_part(source, old.fileno(), target.fileno(), at, end)
            except OSError as error:
                raise _named(error, source, Path(target.name)) from error


def append_part(source: Path, old: int, new: int, at: int, end: int) -> int:
    """Append a hole, or data up to the next one; return how many bytes.  CheckpointError if the source ends before."""
    done = _append_part(old, new, at, min(end, os.fstat(old).st_size))
    if done == 0:
        raise CheckpointError(f"{source}: {at} bytes, {end} are needed")
    return done


def copy_range(source: int, target: int, count: int) -> int:
    """Copy up to `count` bytes between two open files at their positions; return how many, 0 at the end of the source.

    The kernel copies, on some file systems without moving a byte; where it cannot, we do.
    """
    try:
        if hasattr(os, "copy_file_range"):
            return os.copy_file_range(source, target, count)
    except OSError as error:
        if error.errno not in {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}:
            raise
    data = os.read(source, min(count, _COPY_BYTES))
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
    return len(data)


def _append_part(old: int, new: int, at: int, end: int) -> int:
    """Append the hole at this place, or the data up to the next one; return how many bytes, 0 at the end."""
    if at >= end:
        return 0
    data = _next_data(old, at, end)
    if data > at:
        os.ftruncate(new, os.lseek(new, data - at, os.SEEK_CUR))
        return data - at
    until = min(end, os.lseek(old, at, os.SEEK_HOLE))
    os.lseek(old, at, os.SEEK_SET)
    return copy_range(old, new, max(until - at, 1))


def _next_data(descriptor: int, at: int, end: int) -> int:
    """Return where data begins; `end` if there is nothing but a hole [lseek(2), SEEK_DATA]."""
    try:
        return min(end, os.lseek(descriptor, at, os.SEEK_DATA))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    return end


def _named(error: OSError, source: Path, target: Path) -> OSError:
    """Return an error of the kernel, which names no file, with both."""
    return OSError(error.errno, error.strerror, str(source), None, str(target))
