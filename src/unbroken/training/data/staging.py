"""Copy or unpack data sets to the fast disk of the node, once for all ranks; standard library alone."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import StorageError
from unbroken.system import disk, fs
from unbroken.system.host import boot_id
from unbroken.training.data.archives import is_archive, unpack, unpacked_bytes

FAST_FOLDERS = ("UNBROKEN_FAST", "SLURM_TMPDIR")
FOLDER = "unbroken-staged"
STAMP = "stamp.json"
# A node without any room is in trouble that has nothing to do with us.
RESERVE_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 8 * 1024 * 1024
TELL_SECONDS = 5.0
POLL_SECONDS = 0.05

# Relative path, size and time of change of each file.
Listing = list[tuple[str, int, int]]


def staged(
    source: str | os.PathLike[str],
    fast: str | os.PathLike[str] | None = None,
    tell: Callable[[str], None] = lambda line: print(f"unbroken: {line}", flush=True),
) -> Path:
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
    if folder is None:
        return _in_place(path, f"no fast disk is known ({' and '.join(FAST_FOLDERS)} are not set)", tell)
    try:
        return _Stage(path, folder, tell).ready()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return _in_place(path, f"no room in {folder} ({disk.free_bytes(folder):,} bytes free)", tell)


@dataclass(frozen=True)
class _Stage:
    """Stage one source in the folder of all copies."""

    source: Path
    fast: Path
    tell: Callable[[str], None]

    def ready(self) -> Path:
        root = self.fast / FOLDER
        root.mkdir(parents=True, exist_ok=True)
        while True:
            listing = list_files(self.source)
            copy = root / self._name(listing)
            if not _is_whole(copy):
                with _locked(root / f".{copy.name}.lock", self.tell):
                    if not _is_whole(copy):
                        self._make(copy, listing)
            if list_files(self.source) == listing:
                return (
                    copy / "data"
                    if self.source.is_dir() or is_archive(self.source)
                    else copy / "data" / self.source.name
                )
            self.tell(f"{self.source} changed while it was copied; once more")

    def _name(self, listing: Listing) -> str:
        # Nothing is flushed, so a copy from before a crash of the node may be hollow: each boot has copies of its own.
        text = json.dumps([boot_id(), str(self.source), listing])
        return f"{self.source.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def _make(self, copy: Path, listing: Listing) -> None:
        """Make the copy under the lock, so unfinished drafts there belong to killed processes."""
        for left in copy.parent.glob(f".{copy.name}.draft*"):
            fs.remove_tree(left)
        draft = copy.with_name(f".{copy.name}.draft")
        needed = unpacked_bytes(self.source) if is_archive(self.source) else sum(size for _, size, _ in listing)
        if disk.free_bytes(self.fast) < needed + RESERVE_BYTES:
            raise OSError(errno.ENOSPC, "no room", str(self.fast))
        self.tell(
            f"copying {self.source} to {copy}: {len(listing)} files, {sum(size for _, size, _ in listing):,} bytes"
        )
        began, data = time.monotonic(), draft / "data"
        try:
            data.mkdir(parents=True)
            self._fill(data, listing, _Meter(needed, self.tell))
            (draft / STAMP).write_text(json.dumps(list_files(data)))
            if copy.exists():  # damaged: a cleaner of temporary folders takes old files one by one
                fs.remove_tree(copy)
            draft.rename(copy)
        except BaseException:  # a full disk, a bad archive, Ctrl-C: no process would ever use what is there
            if draft.exists():
                fs.remove_tree(draft)
            raise
        self.tell(f"copied in {time.monotonic() - began:.1f} s")

    def _fill(self, data: Path, listing: Listing, meter: _Meter) -> None:
        if is_archive(self.source):
            unpack(self.source, data, meter.add)
            return
        for name, _, _ in listing:
            origin = self.source / name if self.source.is_dir() else self.source
            (data / name).parent.mkdir(parents=True, exist_ok=True)
            with origin.open("rb") as reader, (data / name).open("wb") as writer:
                while chunk := reader.read(CHUNK_BYTES):
                    writer.write(chunk)
                    meter.add(len(chunk))
            shutil.copystat(origin, data / name)


class _Meter:
    """Print the progress of a copy now and then."""

    def __init__(self, total: int, tell: Callable[[str], None]) -> None:
        self._total, self._tell, self._done = total, tell, 0
        self._next = time.monotonic() + TELL_SECONDS

    def add(self, count: int) -> None:
        self._done += count
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + TELL_SECONDS
            self._tell(f"copied {self._done:,} of {max(self._total, self._done):,} bytes")


def list_files(path: Path) -> Listing:
    """List every file below a folder, links followed, in the order of the names; a file itself is one entry."""
    if path.is_file():
        return [_entry(path.name, path)]
    found, seen = [], set()
    for root, folders, names in os.walk(path, followlinks=True):
        state = os.stat(root)
        if (state.st_dev, state.st_ino) in seen:  # a link to a folder above
            folders.clear()
            continue
        seen.add((state.st_dev, state.st_ino))
        found += [_entry(os.path.relpath(Path(root, name), path), Path(root, name)) for name in names]
    return sorted(found)


def _entry(name: str, path: Path) -> tuple[str, int, int]:
    state = path.stat()
    return name, state.st_size, state.st_mtime_ns


def _is_whole(copy: Path) -> bool:
    """Return True if every file of a finished copy exists with its size."""
    try:
        stamp = json.loads((copy / STAMP).read_text())
        return all((copy / "data" / name).stat().st_size == size for name, size, _ in stamp)
    except (OSError, ValueError):
        return False


def _fast_folder(fast: str | os.PathLike[str] | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    named = fast or next((value for name in FAST_FOLDERS if (value := environment.get(name))), None)
    if named is None:
        return None
    if not Path(named).is_dir():
        raise StorageError(f"{named}: no folder; allowed: a folder on the fast disk of this node")
    return Path(named)


def _in_place(source: Path, why: str, tell: Callable[[str], None]) -> Path:
    if is_archive(source):
        raise StorageError(
            f"{source}: {why}, and an archive cannot be read where it is; name a folder: staged(..., fast=)"
        )
    tell(f"reading {source} where it is: {why}")
    return source


@contextmanager
def _locked(path: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Lock for one process of the node at a time; the kernel frees the lock of a killed process."""
    with path.open("a") as file:
        has_told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not has_told:
                    tell("another process of this node is copying the data; waiting for it")
                has_told = True
                time.sleep(POLL_SECONDS)
        yield
