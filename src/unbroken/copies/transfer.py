"""Brings a checkpoint from one store into another: checked on the way, resumed after a kill, shown by one rename."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.own_folder import confirm_own
from unbroken.runs.passport import FILE_NAME, read_passport, reading
from unbroken.runs.progress import FileDigest
from unbroken.system import fs
from unbroken.system.digests import new_hasher
from unbroken.system.flush import flush_tree

_DRAFT = ".copying-"
_CHUNK_BYTES = 4 * 1024 * 1024
# So that a crash of the machine costs little, and the page cache holds little that waits to be written.
FLUSH_BYTES = 256 * 1024 * 1024
# Somebody else has put the same there.
_THERE = {errno.ENOTEMPTY, errno.EEXIST}


@dataclass(frozen=True)
class Transfer:
    """From where ever a checkpoint is to the folder `target`.

    `token` is that of the writer: two never share a draft, and the later one takes over what the earlier one has.
    `check` is called after every few megabytes and may raise to leave; `confirm` is called before the rename, and
    raises if this process may not write there any more.
    """

    target: Path
    token: int
    check: Callable[[], None] = lambda: None
    confirm: Callable[[], None] = lambda: None

    def copy(self, checkpoint: Checkpoint) -> None:
        """Copies the passport and the files that it names; nothing if it is there.

        CheckpointError if the checkpoint is bad or vanishes, StorageError or OSError if it cannot be read or the copy
        not be written.  If the process dies inside, nothing is to be seen, and the next `copy` goes on from there.
        """
        if (self.target / checkpoint.name).is_dir():
            return
        self.target.mkdir(exist_ok=True)
        confirm_own(self.target)
        draft = self._draft(checkpoint.name)
        self._fill(draft, checkpoint)
        flush_tree(draft)
        self.confirm()
        confirm_own(self.target)
        try:
            os.rename(draft, self.target / checkpoint.name)
        except OSError as error:
            if error.errno not in _THERE:
                raise
            fs.remove_tree(draft)
        fs.flush_folder(self.target)

    def drop_drafts(self, but: str = "") -> None:
        """Removes what is there of copies that were cut off, except of the checkpoint `but`."""
        for name, path in drafts(self.target):
            if name != but and not path.is_symlink():
                fs.remove_tree(path)

    def _draft(self, name: str) -> Path:
        own = self.target / f"{_DRAFT}t{self.token}-{name}"
        for found, path in drafts(self.target):
            if found == name and path != own and not own.exists():
                with contextlib.suppress(FileNotFoundError):
                    os.rename(path, own)
        make_folder(own)
        return own

    def _fill(self, draft: Path, checkpoint: Checkpoint) -> None:
        (draft / FILE_NAME).unlink(missing_ok=True)
        with reading(checkpoint.folder / FILE_NAME):
            passport = (checkpoint.folder / FILE_NAME).read_text()
        for folder in _folders(checkpoint):
            make_folder(draft / folder)
        for strange in {str(name) for name in fs.tree_files(draft)} - set(checkpoint.passport.files):
            (draft / strange).unlink()
        for name, entry in checkpoint.passport.files.items():
            self._copy_file(checkpoint.folder / name, draft / name, entry, checkpoint.passport.algorithm)
        fs.write_new(draft / FILE_NAME, passport)
        if read_passport(draft).digest != checkpoint.passport.digest:
            raise CheckpointError(f"{checkpoint.folder}: its passport changed while it was copied")

    def _copy_file(self, source: Path, target: Path, entry: FileDigest, algorithm: str) -> None:
        if self._filled(source, target, algorithm) == entry.digest:
            return
        target.unlink()  # what an earlier copy left may have been torn by a crash
        if self._filled(source, target, algorithm) != entry.digest:
            target.unlink()
            raise CheckpointError(f"{source}: the content changed since it was published (digest)")

    def _filled(self, source: Path, target: Path, algorithm: str) -> str:
        """The digest of the target, after all that the source has beyond it was added."""
        hasher, unflushed = new_hasher(algorithm), 0
        old = open_plain(source)
        try:
            new = os.open(target, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            try:
                while data := os.read(new, _CHUNK_BYTES):
                    self.check()
                    hasher.update(data)
                os.lseek(old, os.lseek(new, 0, os.SEEK_CUR), os.SEEK_SET)
                while data := _read(old, source):
                    self.check()
                    hasher.update(data)
                    _write(new, data)
                    unflushed += len(data)
                    if unflushed >= FLUSH_BYTES:
                        os.fdatasync(new)
                        unflushed = 0
                with contextlib.suppress(OSError):  # some file systems have no rights
                    os.fchmod(new, stat.S_IMODE(os.fstat(old).st_mode) | stat.S_IRUSR | stat.S_IWUSR)
            finally:
                os.close(new)
        finally:
            os.close(old)
        return hasher.hexdigest()


def drafts(folder: Path) -> list[tuple[str, Path]]:
    """What copies that were cut off left in a store: the name of the checkpoint, and where its draft is."""
    found = list(folder.glob(f"{_DRAFT}t*")) if folder.is_dir() else []
    return sorted((path.name.removeprefix(_DRAFT).partition("-")[2], path) for path in found)


def _folders(checkpoint: Checkpoint) -> list[Path]:
    """Those of its files, and empty ones too unless it is copied in part."""
    found = {parent for name in checkpoint.passport.files for parent in Path(name).parents} - {Path()}
    if len(checkpoint.parts) < len(checkpoint.passport.files):
        for base, names, _ in os.walk(checkpoint.folder):
            inner = (Path(base) / name for name in names)
            found |= {path.relative_to(checkpoint.folder) for path in inner if not path.is_symlink()}
    return sorted(found)


def make_folder(path: Path) -> None:
    """Whatever stands there instead is not written into."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    confirm_own(path)


def open_plain(path: Path) -> int:
    """A plain file, open to be read."""
    with reading(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointError(f"{path}: not a plain file any more")
    return descriptor


def _read(descriptor: int, path: Path) -> bytes:
    with reading(path):
        return os.read(descriptor, _CHUNK_BYTES)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
