"""Files that are all there or not there, on local disks and on shared file systems.

Every step that another process could see half done goes through `os` calls in this module, so that a test can kill
the writer before and after each of them.
"""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unbroken.errors import OutageError, StorageError

# What a user can fix by freeing space or giving rights; anything else is a mistake of ours and keeps its traceback.
_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT}
_STORAGE_ERRNOS = _FULL_ERRNOS | {errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG, errno.EXDEV}
# The disk, the file server or the network to it does not answer as it should: that may pass, and says nothing of the
# file.  EINVAL is what FUSE says then, EKEYEXPIRED what NFS says without a ticket.
_OUTAGES = (
    "EIO ESTALE ENOTCONN ESHUTDOWN ETIMEDOUT EREMOTEIO EBUSY EAGAIN EINVAL EINTR ENODEV ENXIO ENOLINK EPROTO ECOMM "
    "ECONNABORTED ECONNREFUSED ECONNRESET EPIPE EHOSTDOWN EHOSTUNREACH ENETDOWN ENETRESET ENETUNREACH EUCLEAN EBADMSG "
    "ENODATA EKEYEXPIRED ENOKEY ENOLCK ECANCELED"
)
# Not all systems have all of them.
OUTAGE_ERRNOS = {getattr(errno, name) for name in _OUTAGES.split() if hasattr(errno, name)}
# As a program of any kind ends with them; others of the above it may mean of something else.
_STORAGE_WORDS = tuple(os.strerror(code) for code in (*_FULL_ERRNOS, errno.EROFS, errno.EIO, errno.ESTALE))
_REMOVAL_RESTS_SECONDS = (0.01, 0.05, 0.2, 0.5)
# A draft of one small file is there for a moment only; no process still writes one so old.
DRAFT_SECONDS = 3600.0
# With less than that on its disk no segment gets anywhere, and Snakemake's own notes are torn.
FULL_BYTES = 1024 * 1024
# The free space where it is not counted.
UNCOUNTED = sys.maxsize
UNTOUCHED = "earlier checkpoints are untouched"
PASSING = "wait until that is over"
# ioctl_ficlone(2): on XFS, Btrfs and others.
_FICLONE = 0x40049409
_COPY_BYTES = 4 * 1024 * 1024
_UNIQUE_NAME = re.compile(r"\..+-[0-9a-f]{32}")


def unique_name(kind: str) -> str:
    """Return a hidden name that no other process will choose."""
    return f".{kind}-{os.urandom(16).hex()}"


def is_unique_name(name: str) -> bool:
    """Return True for a name that `unique_name` made, so that nothing of the user's is taken for rubbish."""
    return _UNIQUE_NAME.fullmatch(name) is not None


def free_bytes(path: Path) -> int:
    """Return what an ordinary user may still write on the file system of `path`, or of its nearest parent that exists.

    `UNCOUNTED` where it has no number of blocks at all, which is not "none free": FUSE without statfs(2), a tmpfs
    without a limit.
    """
    while not path.exists() and path != path.parent:
        path = path.parent
    state = os.statvfs(path)
    return state.f_bavail * state.f_frsize if state.f_blocks else UNCOUNTED


def full_disk(folders: Iterable[Path]) -> str:
    """Return one line on the first of these folders whose file system is full; empty if none is, or does not say so."""
    for folder in folders:
        with suppress(OSError):
            if found := full_disk_words(folder.resolve()):
                return f"{found}; remove what you do not need (type: df -h {folder.resolve()}) and start again"
    return ""


def full_disk_words(folder: Path, needed_bytes: int = 0) -> str:
    """Return a line that the file system of `folder` is full, with the bytes; empty if it has more space.

    Raise OSError if the file system does not say how much space it has.
    """
    free, needed = free_bytes(folder), max(needed_bytes, FULL_BYTES)
    if free > needed:
        return ""
    return f"{folder}: the disk is full, {free:,} bytes free, at least {needed - free:,} missing"


def is_full(error: OSError) -> bool:
    """Return True if there is no space, or a quota is used up; of a whole tree (shutil.Error) if it was so anywhere."""
    if isinstance(error, shutil.Error):
        return any(os.strerror(code) in str(error) for code in _FULL_ERRNOS)
    return error.errno in _FULL_ERRNOS


def tells_of_storage(text: str) -> bool:
    """Return True if a program reports a disk that is full, read-only or fails; free bytes show no quota."""
    return any(words in text for words in _STORAGE_WORDS)


@contextmanager
def storage_errors(path: Path, needed_bytes: int = 0) -> Iterator[None]:
    """Turn a full or unwritable disk into one StorageError line that names the path and the bytes missing."""
    try:
        yield
    except OSError as error:
        if error.errno not in _STORAGE_ERRNOS:
            raise
        raise _storage_error(path, needed_bytes, error) from error


@contextmanager
def os_errors(path: Path) -> Iterator[None]:
    """Turn every OSError into one line: an OutageError for one of `OUTAGE_ERRNOS`, else a StorageError."""
    with storage_errors(path):
        try:
            yield
        except OSError as error:
            line = f"{error.filename or path}: {error.strerror or error}; {UNTOUCHED}"
            if error.errno in OUTAGE_ERRNOS:
                raise OutageError(line, todo=PASSING) from error
            if error.errno in _STORAGE_ERRNOS:
                raise
            raise StorageError(line) from error


def _storage_error(path: Path, needed_bytes: int, error: OSError) -> StorageError:
    line = f"{error.filename or path}: {error.strerror}"
    if error.errno in _FULL_ERRNOS:
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
        flush_folder(path.parent)


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
        flush_folder(path.parent)
        return True


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


def copy_file(source: Path, target: Path) -> None:
    """Make a copy of a plain file with its permissions and times; raise FileExistsError if `target` exists.

    The file system copies without moving bytes where it can; holes stay holes.
    """
    with source.open("rb", buffering=0) as old:
        copy_open_file(source, old.fileno(), target)


def copy_open_file(source: Path, descriptor: int, target: Path) -> None:
    """Copy a file, as `copy_file` does, from a descriptor at its beginning, whatever has the source's name by now."""
    found = os.fstat(descriptor)
    with target.open("xb", buffering=0) as new:
        try:
            if found.st_blocks * 512 < found.st_size:
                _copy_with_holes(descriptor, new.fileno(), found.st_size)
            else:
                while copy_range(descriptor, new.fileno(), 1 << 30):
                    pass
        except OSError as error:  # the kernel names no file
            raise OSError(error.errno, error.strerror, str(source), None, str(target)) from error
        os.fchmod(new.fileno(), found.st_mode & 0o7777)
        os.utime(new.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))


def _copy_with_holes(source: int, target: int, size: int) -> None:
    """Copy the data of a sparse file alone [lseek(2), SEEK_DATA]."""
    at = 0
    while at < size:
        try:
            begin = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                break
            raise
        end = os.lseek(source, begin, os.SEEK_HOLE)
        os.lseek(source, begin, os.SEEK_SET)
        os.lseek(target, begin, os.SEEK_SET)
        while (left := end - os.lseek(source, 0, os.SEEK_CUR)) > 0 and copy_range(source, target, left):
            pass
        at = end
    os.ftruncate(target, size)


def flush_folder(folder: Path) -> None:
    """Make the names in a folder survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_file(path: Path) -> None:
    """Make a file's content survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


def numbered(folder: Path, name: str) -> Path:
    """Return a path in `folder` whose name begins with the next number: `000003_NAME`."""
    last = _number(by_number(folder)[-1]) if folder.is_dir() and any(folder.iterdir()) else 0
    return folder / f"{last + 1:06d}_{name}"


def by_number(folder: Path) -> list[Path]:
    """Return what is in a folder in the order in which `numbered` named it, whatever clock made the rest of a name.

    What has no number comes first, by its name.
    """
    return sorted(folder.iterdir(), key=lambda path: (_number(path), path.name))


def _number(path: Path) -> int:
    number = path.name.partition("_")[0]
    return int(number) if number.isdecimal() and "_" in path.name else 0


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
