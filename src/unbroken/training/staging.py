"""Copy or unpack data sets to the fast disk of the node, once for all ranks; standard library alone."""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import json
import logging
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from unbroken.errors import StorageError
from unbroken.system import disk, fs, log
from unbroken.system.host import boot_id
from unbroken.training.core.environment import say

FAST_FOLDERS = ("UNBROKEN_FAST", "SLURM_TMPDIR")
FOLDER = "unbroken-staged"
STAMP = "stamp.json"
# A node without any room is in trouble that has nothing to do with us.
RESERVE_BYTES = 64 * 1024 * 1024
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip")
_BAD_ARCHIVE = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)

# Relative path, size and time of change of each file.
Listing = list[tuple[str, int, int]]
logger = logging.getLogger(__name__)


def staged(source: str | os.PathLike[str], fast: str | os.PathLike[str] | None = None) -> Path:
    """Return the path from which to read `source`: its copy on this node's fast disk, which is made if it is missing.

    `source` is a file, a folder, or an archive (tar, tar.gz, zip, ...), which becomes a folder.  The fast disk is
    `fast`, or UNBROKEN_FAST, or SLURM_TMPDIR; without one, or without space, it is the source itself (for an
    archive: StorageError).  A copy serves all processes of the node, and later ones, as long as size and time of each
    file are those of the source.  If the process dies inside, the next one begins the copy again.
    """
    path = Path(os.path.abspath(source))
    if not path.exists():
        raise StorageError(f"{path}: there is nothing; allowed: a file, a folder or an archive")
    folder = _fast_folder(fast)
    with log.lines_to(say):
        if folder is None:
            return _in_place(path, f"no fast disk is known ({' and '.join(FAST_FOLDERS)} are not set)")
        try:
            return _copy_of(path, folder / FOLDER)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return _in_place(path, f"no room in {folder} ({disk.free_bytes(folder):,} bytes free)")


def _fast_folder(fast: str | os.PathLike[str] | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    named = fast or next((value for name in FAST_FOLDERS if (value := environment.get(name))), None)
    if named is None:
        return None
    if not Path(named).is_dir():
        raise StorageError(f"{named}: no folder; allowed: a folder on the fast disk of this node")
    return Path(named)


def _in_place(source: Path, why: str) -> Path:
    if _is_archive(source):
        raise StorageError(
            f"{source}: {why}, and an archive cannot be read where it is; name a folder: staged(..., fast=)"
        )
    logger.warning("reading %s where it is: %s", source, why)
    return source


def _copy_of(source: Path, root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    while True:
        listing = list_files(source)
        # Nothing is flushed, so a copy from before a crash of the node may be hollow: each boot has copies of its own.
        text = json.dumps([boot_id(), str(source), listing])
        copy = root / f"{source.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        if not _is_whole(copy):
            with _locked(root / f".{copy.name}.lock"):
                if not _is_whole(copy):
                    _make(source, copy, listing)
        if list_files(source) == listing:
            is_file = source.is_file() and not _is_archive(source)
            return copy / "data" / source.name if is_file else copy / "data"
        logger.warning("%s changed while it was copied; once more", source)


def _make(source: Path, copy: Path, listing: Listing) -> None:
    """Make the copy under the lock, so an unfinished draft there belongs to a killed process."""
    draft, size = copy.with_name(f".{copy.name}.draft"), sum(size for _, size, _ in listing)
    for left in (draft, copy):  # a copy is damaged: a cleaner of temporary folders takes old files one by one
        if left.exists():
            fs.remove_tree(left)
    if disk.free_bytes(copy.parent) < size + RESERVE_BYTES:
        raise OSError(errno.ENOSPC, "no room", str(copy.parent))
    logger.info("copying %s to %s: %d files, %s bytes", source, copy, len(listing), f"{size:,}")
    data = draft / "data"
    try:
        data.mkdir(parents=True)
        if _is_archive(source):
            _unpack(source, data)
        else:
            for name, _, _ in listing:
                (data / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name if source.is_dir() else source, data / name)
        (draft / STAMP).write_text(json.dumps(list_files(data)))
        draft.rename(copy)
    except BaseException:  # a full disk, a bad archive, Ctrl-C: no process would ever use what is there
        if draft.exists():
            fs.remove_tree(draft)
        raise


def list_files(path: Path) -> Listing:
    """List every file below a folder, links followed, in the order of the names; a file itself is one entry."""
    base, files, seen = (path.parent, [path], set()) if path.is_file() else (path, [], set())
    for root, folders, names in os.walk(path, followlinks=True):
        state = os.stat(root)
        if (state.st_dev, state.st_ino) in seen:  # a link to a folder above
            folders.clear()
            continue
        seen.add((state.st_dev, state.st_ino))
        files += [Path(root, name) for name in names]
    states = [(os.path.relpath(file, base), file.stat()) for file in files]
    return sorted((name, state.st_size, state.st_mtime_ns) for name, state in states)


def _is_whole(copy: Path) -> bool:
    """Return True if every file of a finished copy exists with its size."""
    try:
        stamp = json.loads((copy / STAMP).read_text())
        return all((copy / "data" / name).stat().st_size == size for name, size, _ in stamp)
    except (OSError, ValueError):
        return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock for one process of the node at a time; the kernel frees the lock of a killed process."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("another process of this node is copying the data; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_archive(path: Path) -> bool:
    return path.name.lower().endswith(_ARCHIVES) and path.is_file()


def _unpack(path: Path, target: Path) -> None:
    """Unpack an archive whose content is not trusted.

    Raise StorageError if a name leads out of the folder or the archive is damaged.  Other things than files, folders
    and links inside are refused as well (tarfile's filter "data").
    """
    try:
        if path.name.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    _refuse_outside(path, name)
                    archive.extract(name, target)
            return
        with tarfile.open(path) as tar:
            for member in tar:
                _refuse_outside(path, member.name)
                tar.extract(member, target, filter="data")
    except _BAD_ARCHIVE as error:
        raise StorageError(f"{path}: cannot be unpacked ({error})") from error


def _refuse_outside(path: Path, name: str) -> None:
    """Raise StorageError for a name that leads out of the folder; zipfile would silently change it."""
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise StorageError(f"{path}: {name!r} in it leads out of the folder that it is unpacked into; nothing was kept")
