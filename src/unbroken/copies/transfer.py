"""Copy a checkpoint between two stores of a run: continued after a kill, read back, published by one rename."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from unbroken.errors import CheckpointError
from unbroken.store.checkpoint import FILE_NAME, Checkpoint, reading
from unbroken.store.own_folder import confirm_own
from unbroken.store.progress import FileDigest
from unbroken.system import disk, fs
from unbroken.system.copying import append_part
from unbroken.system.digests import digest_file
from unbroken.system.fs import flush_tree

STEP_BYTES = 32 * 1024 * 1024
# A crash of the machine costs no more of a copy, and the page cache holds no more that waits to be written.
FLUSH_BYTES = 256 * 1024 * 1024
_DRAFT = ".copying-"


def is_draft(name: str) -> bool:
    """Return True for the folder of an unfinished copy, or of what is being removed."""
    return name.startswith(_DRAFT) or fs.is_unique_name(name)


@dataclass(frozen=True)
class Transfer:
    """Copy checkpoints to the folder `target`.

    `check` is called after every few megabytes and may raise to leave.  `confirm` is called before the rename, and
    raises if this process may not write there any more.
    """

    target: Path
    check: Callable[[], None] = lambda: None
    confirm: Callable[[], None] = lambda: None

    def copy(self, checkpoint: Checkpoint) -> None:
        """Copy the manifest and the files that it names, unless the target has them.

        CheckpointError if the checkpoint is bad or vanishes, StorageError or OSError if it cannot be read or the copy
        not be written.  If the process dies inside, the target shows nothing, and the next call continues.
        """
        if (self.target / checkpoint.name).is_dir():
            return
        draft = self.target / f"{_DRAFT}{checkpoint.name}"
        for folder in (self.target, draft):
            make_folder(folder)
        self._fill(draft, checkpoint)
        flush_tree(draft)
        self.confirm()
        confirm_own(self.target)
        os.rename(draft, self.target / checkpoint.name)
        fs.flush(self.target)

    def unfinished(self) -> list[str]:
        """Return the names of the checkpoints whose copies were cut off."""
        return sorted(path.name.removeprefix(_DRAFT) for path in self.target.glob(f"{_DRAFT}*"))

    def drop_unfinished(self, but: str = "") -> None:
        """Remove the copies that were cut off, except that of the checkpoint `but`."""
        for name in self.unfinished():
            if name != but:
                fs.remove_tree(self.target / f"{_DRAFT}{name}")

    def _fill(self, draft: Path, checkpoint: Checkpoint) -> None:
        with reading(checkpoint.folder / FILE_NAME):
            manifest = (checkpoint.folder / FILE_NAME).read_text()
        for base, names, _ in os.walk(checkpoint.folder):
            for name in names:
                make_folder(draft / Path(base, name).relative_to(checkpoint.folder))
        (draft / FILE_NAME).unlink(missing_ok=True)
        for name, entry in checkpoint.passport.files.items():
            self._copy_file(checkpoint.folder / name, draft / name, entry, checkpoint.passport.algorithm)
        fs.write_new(draft / FILE_NAME, manifest)

    def _copy_file(self, path: Path, target: Path, entry: FileDigest, algorithm: str) -> None:
        with open_plain(path) as source:
            there = target.stat().st_size if target.exists() else 0
            for begin in (min(there, entry.size_bytes), 0):  # a crash may have torn what an earlier copy left
                extend(source, target, begin, entry.size_bytes, self.check)
                if digest_file(target, algorithm) == entry.digest:
                    return
        raise CheckpointError(f"{path}: the content changed since it was published (digest)")


def make_folder(path: Path) -> None:
    """Make a folder unless it is there; raise ForeignFolderError if a link, or anything else, has replaced it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    confirm_own(path)


def open_plain(path: Path) -> BinaryIO:
    """Open a file to be read; raise CheckpointError if it is gone, a link, or no plain file."""
    with reading(path):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise CheckpointError(f"{path}: not a plain file any more")
        return path.open("rb", buffering=0)


def extend(source: BinaryIO, target: Path, begin: int, size: int, check: Callable[[], None]) -> None:
    """Append to the first `begin` bytes of `target` what `source` has up to `size`; holes stay holes.

    Raise CheckpointError if the source is shorter; OSError names the target, whose first `begin` bytes are as before.
    """
    found, at, unflushed = os.fstat(source.fileno()), begin, 0
    new = os.open(target, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        if min(size - begin, found.st_blocks * 512) > disk.free_bytes(target.parent):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(new, at)
        os.lseek(new, at, os.SEEK_SET)
        while at < size:
            check()
            done = append_part(Path(source.name), source.fileno(), new, at, min(size, at + STEP_BYTES))
            at, unflushed = at + done, unflushed + done
            if unflushed >= FLUSH_BYTES:
                os.fdatasync(new)
                unflushed = 0
        with contextlib.suppress(OSError):  # some file systems have no permissions
            os.fchmod(new, stat.S_IMODE(found.st_mode) | stat.S_IRUSR | stat.S_IWUSR)
    except OSError as error:
        if disk.is_full(error):  # what does not fit must not fill the disk for others
            os.ftruncate(new, begin)
        raise OSError(error.errno, error.strerror, str(target)) from None
    finally:
        os.close(new)
