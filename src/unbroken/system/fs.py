"""Files that are all there or not there, on local disks and on shared file systems.

Every step that another process could see half done goes through `os` calls in this module, so that a test can kill
the writer before and after each of them.
"""

from __future__ import annotations

import errno
import math
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from unbroken.errors import OutageError, StorageError
from unbroken.system import disk

_REMOVAL_RESTS_SECONDS = (0.01, 0.05, 0.2, 0.5)
# A draft of one small file is there for a moment only; no process still writes one so old.
DRAFT_SECONDS = 3600.0
# From so many files on threads are worth their start.
MANY = 256
_AT_A_TIME = 16
_UNIQUE_NAME = re.compile(r"\..+-[0-9a-f]{32}")


def unique_name(kind: str) -> str:
    """Return a hidden name that no other process will choose."""
    return f".{kind}-{os.urandom(16).hex()}"


def is_unique_name(name: str) -> bool:
    """Return True for a name that `unique_name` made, so that nothing of the user's is taken for rubbish."""
    return _UNIQUE_NAME.fullmatch(name) is not None


@contextmanager
def storage_errors(path: Path, needed_bytes: int = 0) -> Iterator[None]:
    """Turn a full or unwritable disk into one StorageError line that names the path and the bytes missing."""
    try:
        yield
    except OSError as error:
        if error.errno not in disk.STORAGE_ERRNOS:
            raise
        raise disk.storage_error(path, needed_bytes, error) from error


@contextmanager
def room_errors(path: Path, needed_bytes: int) -> Iterator[None]:
    """Turn what another library raises on a full disk, whatever it is, into one StorageError line."""
    try:
        yield
    except Exception as error:
        if disk.free_bytes(path) >= needed_bytes:
            raise
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        raise disk.storage_error(path, needed_bytes, full) from error


@contextmanager
def os_errors(path: Path) -> Iterator[None]:
    """Turn every OSError into one line: an OutageError for one of `OUTAGE_ERRNOS`, else a StorageError."""
    with storage_errors(path):
        try:
            yield
        except OSError as error:
            line = f"{error.filename or path}: {error.strerror or error}; {disk.UNTOUCHED}"
            if error.errno in disk.OUTAGE_ERRNOS:
                raise OutageError(line, todo=disk.PASSING) from error
            if error.errno in disk.STORAGE_ERRNOS:
                raise
            raise StorageError(line) from error


def write_new(path: Path, text: str) -> None:
    """Write a file that must not exist yet and flush it to disk; raise FileExistsError if it does."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        write_all(descriptor, text)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, text: str) -> None:
    """Write the whole text; a disk that fills up takes a part first and reports it with the next write only."""
    data = memoryview(text.encode())
    while data:
        data = data[os.write(descriptor, data) :]


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` by the new content in one step; readers see the old or the new, never a mixture."""
    with storage_errors(path, len(text)):
        draft = path.with_name(unique_name(path.name))
        try:
            write_new(draft, text)
            os.replace(draft, path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        flush(path.parent)


def overwrite(path: Path, text: str) -> None:
    """Overwrite the content, which needs no space on the disk; do nothing if the file has another size."""
    data = text.encode()
    with path.open("r+b") as file:
        if os.fstat(file.fileno()).st_size == len(data):
            file.write(data)


def create_exclusive(path: Path, text: str) -> bool:
    """Make `path` with its whole content unless it exists; return False if it does.

    A hard link makes it, which is atomic on NFS too.  A server may have linked although its answer got lost: then the
    draft's link count shows it (open(2), O_EXCL notes).
    """
    with storage_errors(path, len(text)):
        draft = path.with_name(unique_name(path.name))
        try:
            write_new(draft, text)
            os.link(draft, path)
        except FileExistsError:
            return os.stat(draft).st_nlink == 2
        finally:
            draft.unlink(missing_ok=True)
        flush(path.parent)
        return True


def flush(path: Path | str) -> None:
    """Make a file's content, or the names in a folder, survive a power loss; OSError names it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def flush_tree(folder: Path) -> None:
    """Flush every file and folder below, then the folder itself; raise OSError with what did not reach the disk."""
    flush_paths(list(_flushed(str(folder))))


def flush_paths(paths: list[str]) -> None:
    """Flush files and folders, the last one after all others, which readers look for; OSError as above.

    Each by itself: only fsync says of a file whether its own data arrived, on a file server too.  Each is a commit of
    the file system's journal, or a round trip to a server, so of many files several are flushed at a time.
    """
    if len(paths) < MANY:
        for path in paths:
            flush(path)
        return
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        for _ in pool.map(flush, paths[:-1]):
            pass
    flush(paths[-1])


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


def point_link(link: Path, target: str) -> None:
    """Make the symbolic link point to `target` (relative to the link's folder) in one step."""
    draft = link.with_name(unique_name(link.name))
    os.symlink(target, draft)
    os.replace(draft, link)


def remove_tree(folder: Path) -> str:
    """Hide a folder in one step, then remove it; a kill in between leaves only hidden rubbish.

    A link is removed, not its target, and a file system mounted below stays.  Return why some of it is still there, for
    the next clean-up; empty if all is gone.  Raise nothing: a clean-up ends no work.
    """
    hidden, why = folder, ""
    if not folder.name.startswith(".trash-"):
        hidden = folder.with_name(unique_name("trash"))
        try:
            os.rename(folder, hidden)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{folder}: {error.strerror or error}"
    for rest_seconds in (*_REMOVAL_RESTS_SECONDS, 0.0):
        try:
            _remove(hidden)
        except OSError as error:
            # What vanishes or appears belongs to a process that still uses the folder, and may be about to end.
            why = f"{error.filename or hidden}: {error.strerror or error}"
            time.sleep(rest_seconds)
        if not os.path.lexists(hidden):
            return ""
    return why


def _remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
        return
    parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _remove_below(parent, folder.name, folder, mount_of(parent))
    finally:
        os.close(parent)


def mount_of(descriptor: int) -> tuple[int, str]:
    """Return what tells mounted file systems apart: the device, and the mount's number, as one may be mounted twice.

    The number is in /proc/self/fdinfo [man proc_pid_fdinfo, since Linux 3.15]; '' where there is none.
    """
    device = os.fstat(descriptor).st_dev
    try:
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    except OSError:
        return device, ""
    return device, next((line.split()[1] for line in lines if line.startswith("mnt_id:")), "")


def _remove_below(parent: int, name: str, path: Path, mount: tuple[int, str]) -> None:
    """Remove a folder by descriptors, so that no link that appears meanwhile is followed.

    All that can be removed is, before the first error is raised.
    """
    failed: OSError | None = None
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        if mount_of(descriptor) != mount:
            raise OSError(errno.EXDEV, "another file system is mounted there", str(path))
        with os.scandir(descriptor) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for below, is_folder in found:
            try:
                if is_folder:
                    _remove_below(descriptor, below, path / below, mount)
                else:
                    os.unlink(below, dir_fd=descriptor)
            except OSError as error:
                failed = failed or OSError(error.errno, error.strerror, str(path / below))
    finally:
        os.close(descriptor)
    if failed:
        raise failed
    os.rmdir(name, dir_fd=parent)


def now_of(folder: Path) -> float:
    """Return the time by the clock of a folder's file server, with which files of all machines can be compared.

    By this machine's clock where nothing can be written.
    """
    probe = folder / unique_name("now")
    try:
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink()
    except OSError:
        return time.time()
    return now


def remove_drafts(folder: Path, silent_seconds: float = 0.0, kind: str = "") -> list[str]:
    """Remove hidden files of killed writers from `folder` if they were not touched for so long; return their names.

    With a `kind`, remove only those that `unique_name` named after it.
    """
    removed = []
    found = [path for path in folder.glob(".*") if is_unique_name(path.name) and kind in ("", path.name[1:-33])]
    now = now_of(folder) if found and silent_seconds else math.inf
    for path in found:
        with suppress(FileNotFoundError):  # its writer is alive and has just put it in its place
            if now - path.lstat().st_mtime >= silent_seconds:
                path.unlink()
                removed.append(path.name)
    return removed


def tree_files(folder: Path) -> list[Path]:
    """Return all files below, relative and sorted; links, also to folders, are listed and not followed."""
    found: list[Path] = []
    for base, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(base) / name).is_symlink()]
        found.extend((Path(base) / name).relative_to(folder) for name in names + links)
    return sorted(found)


def tree_bytes(folder: Path) -> int:
    """Return the size of all files below."""
    return sum((folder / name).lstat().st_size for name in tree_files(folder))
