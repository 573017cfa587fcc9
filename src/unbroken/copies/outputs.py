"""Brings the outputs of a checkpoint to another place of its run, where they lie once per run: only what is new."""

from __future__ import annotations

import itertools
import os
import stat
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from unbroken.copies.transfer import FLUSH_BYTES, make_folder, open_plain
from unbroken.errors import CheckpointError
from unbroken.runs.run_output import OUTPUT, PIECES, OutputPlace, RunOutput, piece_place
from unbroken.system import fs
from unbroken.system.copying import append_part
from unbroken.system.flush import flush_paths

_STEP_BYTES = 32 * 1024 * 1024
# Two files with the same begin, and the same end up to some length, are the same up to there.
_EDGE_BYTES = 64 * 1024


@dataclass
class OutputTransfer:
    """From `source` to the run's folder `target`.

    `check` is called after every few megabytes and may raise to leave.  A file that is just being moved at the source
    is looked for again after `patience_seconds`.
    """

    source: OutputPlace
    target: Path
    check: Callable[[], None] = lambda: None
    patience_seconds: float = 0.0
    _done: set[RunOutput] = field(default_factory=set)  # they are on the disk
    _there: frozenset[RunOutput] = frozenset()
    _pieces: list[RunOutput] = field(default_factory=list)
    _number: int = 0
    _lengths: dict[str, set[int]] = field(default_factory=dict)  # of what is there, by its name
    _touched: dict[str, None] = field(default_factory=dict)

    def copy(self, outputs: Sequence[RunOutput], there: Collection[RunOutput] = (), number: int = 0) -> list[str]:
        """Copy what the target lacks; return the names of outputs that neither place has as they are listed.

        `there` belong to checkpoints that the target shows, the newest of which has that `number`: they stay complete.
        OSError or StorageError as it comes.  If the process dies inside, the next call goes on from there.
        """
        self._there, self._number, self._touched, self._lengths = frozenset(there), number, {}, {}
        for each in self._there:
            self._lengths.setdefault(each.name, set()).update((each.size_bytes, each.resume_bytes))
        self._pieces = [output for output in outputs if output.piece is not None]
        names = {output.name for output in outputs if output.piece is None}
        for name in {piece.name for piece in self._pieces} - names:  # begun again, and not there yet
            self._set_aside(name)
        ordered = sorted(outputs, key=lambda output: output.piece is not None)
        left = [output for output in ordered if not self._is_copied(output)]
        if left and self.patience_seconds:
            time.sleep(self.patience_seconds)
            left = [output for output in left if not self._is_copied(output)]
        if self._touched:
            folders = {str(parent) for path in self._touched for parent in Path(path).parents}
            below = sorted(path for path in folders if path.startswith(f"{self.target}/"))
            flush_paths(self.target, [*self._touched, *reversed(below), str(self.target)])
        self._done |= set(outputs) - set(left)
        return OutputPlace(self.target).lacking(left)

    def missing_bytes(self, outputs: Sequence[RunOutput]) -> int:
        """Return about how many bytes the next copy of them takes; of a sparse file no more than its blocks."""
        missing = 0
        for output in outputs if not self._done.issuperset(outputs) else ():
            there = self.target / output.place
            lacks = output.size_bytes - (there.lstat().st_size if os.path.lexists(there) else 0)
            if lacks > 0 and output not in self._done and (path := self.source.find(output)) is not None:
                missing += min(lacks, path.stat().st_blocks * 512)
        return missing

    def drop_unneeded(self, outputs: Sequence[RunOutput], confirm: Callable[[], None] = lambda: None) -> None:
        """Remove all bytes at the target that belong to none of these; `confirm` is called before each removal.

        It raises if this process may not write there any more.
        """
        place, sizes = OutputPlace(self.target), dict[str, int]()
        named: dict[str, list[RunOutput]] = {}
        for output in outputs:
            named.setdefault(output.name, []).append(output)
            sizes[output.place] = max(output.size_bytes, sizes.get(output.place, 0))
        for folder in (self.target / OUTPUT, self.target / PIECES):
            for path in fs.tree_files(folder):
                name = Path(*path.parts[1:]).as_posix() if folder.name == PIECES else ""
                size = sizes.get(f"{folder.name}/{path.as_posix()}", -1)
                if 0 <= size < (folder / path).lstat().st_size:
                    confirm()
                    os.truncate(folder / path, size)
                elif size < 0 and folder / path not in map(place.find, named.get(name, ())):
                    confirm()
                    (folder / path).unlink()
                    with suppress(OSError):
                        for parent in path.parents:
                            (folder / parent).rmdir()
        self._done &= set(outputs)

    def _is_copied(self, output: RunOutput) -> bool:
        """Copy an output; False if the source does not have it, or it changed meanwhile."""
        if output in self._done or (output in self._there and not OutputPlace(self.target).lacking([output])):
            return True
        path = self.source.find(output)
        if path is None:
            return False
        try:
            old = open_plain(path)
        except CheckpointError:  # it is just being moved
            return False
        try:
            self._fill(path, old, output)
        except CheckpointError:
            return False
        finally:
            os.close(old)
        return True

    def _fill(self, path: Path, old: int, output: RunOutput) -> None:
        self._make_folders(output.place)
        begin = self._same_up_to(old, output)
        if begin is None and output.piece is None:
            self._set_aside(output.name)
        target = self.target / output.place
        if begin != output.size_bytes or not target.exists():
            self._append(path, old, target, output, begin or 0)
            self._touched[str(target)] = None

    def _same_up_to(self, old: int, output: RunOutput) -> int | None:
        """Return how many bytes of the target stay; None if another file, or something else, has its name.

        A crash of the machine may have torn what was appended last, and belongs to no checkpoint that is shown.
        """
        target = self.target / output.place
        if not os.path.lexists(target):
            return 0
        if target.is_symlink() or not target.is_file():
            return None
        with target.open("rb", buffering=0) as new:
            size: int = min(os.fstat(new.fileno()).st_size, output.size_bytes)
            for at in sorted({*self._lengths.get(output.name, set()), size - FLUSH_BYTES - _STEP_BYTES}, reverse=True):
                if len(output.head) < at <= size and _are_same(old, new.fileno(), at, len(output.head)):
                    return at
            return 0 if _are_same(old, new.fileno(), size, len(output.head)) else None

    def _append(self, path: Path, old: int, target: Path, output: RunOutput, begin: int) -> None:
        state, at, unflushed = os.fstat(old), begin, 0
        new = os.open(target, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            os.ftruncate(new, at)
            os.lseek(new, at, os.SEEK_SET)
            while at < output.size_bytes:
                self.check()
                done = append_part(path, old, new, at, min(output.size_bytes, at + _STEP_BYTES))
                at, unflushed = at + done, unflushed + done
                if unflushed >= FLUSH_BYTES:
                    os.fdatasync(new)
                    unflushed = 0
            os.pwrite(new, output.head, 0)
            if not _are_same(old, new, output.size_bytes, len(output.head)):
                raise CheckpointError(f"{path}: it was written again while it was copied")
            with suppress(OSError):  # some file systems have no rights
                os.fchmod(new, stat.S_IMODE(state.st_mode) | stat.S_IRUSR | stat.S_IWUSR)
            os.utime(new, ns=(state.st_atime_ns, output.mtime_ns or state.st_mtime_ns))
        except OSError as error:
            if fs.is_full(error):  # what does not fit must not fill the disk for others
                os.ftruncate(new, begin)
            raise OSError(error.errno, error.strerror, str(target)) from None
        finally:
            os.close(new)

    def _set_aside(self, name: str) -> None:
        """Move what has the name of an output to the pieces: checkpoints that are shown may need it."""
        path = self.target / OUTPUT / name
        if not os.path.lexists(path):
            return
        listed = (piece.place for piece in self._pieces if piece.name == name)
        others = (piece_place(number, name) for number in itertools.count(self._number))
        place = next(each for each in itertools.chain(listed, others) if not os.path.lexists(self.target / each))
        self._make_folders(place)
        os.rename(path, self.target / place)
        self._touched.pop(str(path), None)
        self._done = {output for output in self._done if output.name != name}
        self._touched[str(self.target / place)] = None

    def _make_folders(self, place: str) -> None:
        """Make the folders above a file; a file that has the name of one is moved away."""
        for parent in reversed(Path(place).parents[:-1]):
            path = self.target / parent
            if parent.parts[0] == OUTPUT and len(parent.parts) > 1 and path.is_file() and not path.is_symlink():
                self._set_aside(Path(*parent.parts[1:]).as_posix())
            make_folder(path)


def shortened(names: Sequence[str]) -> str:
    """Return the first of some names, and how many there are."""
    return ", ".join(names[:5]) + (f", ... ({len(names):,} files)" if len(names) > 5 else "")


def _are_same(old: int, new: int, length: int, skip: int) -> bool:
    """Return True if both files begin and end in the same way up to that length, the first bytes left out."""
    head, tail = (skip, min(length, _EDGE_BYTES)), (max(skip, length - _EDGE_BYTES), length)
    return all(
        os.pread(old, max(0, end - begin), begin) == os.pread(new, max(0, end - begin), begin)
        for begin, end in (head, tail)
    )
