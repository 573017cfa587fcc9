"""Copy the outputs of a checkpoint to another location of its run, where each lies once: only what is new."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from unbroken.copies.transfer import FLUSH_BYTES, STEP_BYTES, extend, make_folder, open_plain
from unbroken.errors import CheckpointError
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.layout import OUTPUT, PIECES, RunOutput, piece_place
from unbroken.system import fs
from unbroken.system.fs import flush_tree

# Two files with the same begin, and the same end up to some length, are the same up to there.
EDGE_BYTES = 64 * 1024
# The number of a piece that was moved away: above that of any checkpoint.
_MOVED_AWAY = 900_000


# What an engine knows of a checkpoint.
OutputsOf = Callable[[Checkpoint], Sequence[RunOutput]]


@dataclass(frozen=True)
class OutputPlace:
    """The outputs of a run below `root`; while its program works, in one of the folders that `working` returns."""

    root: Path
    working: Callable[[], Iterable[Path]] = tuple

    def find(self, output: RunOutput) -> Path | None:
        """Return where an output lies as it belongs to its checkpoint; None if it does not."""
        return next((path for path in self._candidates(output) if output.is_whole(path)), None)

    def lacking(self, outputs: Iterable[RunOutput]) -> list[str]:
        """Return the names of those that are not there."""
        return [output.name for output in outputs if self.find(output) is None]

    def _candidates(self, output: RunOutput) -> Iterator[Path]:
        yield self.root / output.place
        if output.piece is None:
            yield from (folder / output.name for folder in self.working())
            pieces = sorted((self.root / PIECES).glob("[0-9]*"), reverse=True)
            yield from (folder / output.name for folder in pieces)


@dataclass
class OutputTransfer:
    """Copy outputs from `source` to the run's folder `target`.

    `check` is called after every few megabytes and may raise to leave.
    """

    source: OutputPlace
    target: Path
    check: Callable[[], None] = lambda: None
    _copied: set[RunOutput] = field(default_factory=set)  # and flushed
    _flushed_bytes: dict[str, set[int]] = field(default_factory=dict)  # of what is shown, by its name

    def copy(self, outputs: Sequence[RunOutput], shown: Collection[RunOutput] = ()) -> list[str]:
        """Copy what the target lacks; return the names of outputs that are nowhere as they are listed.

        `shown` belong to checkpoints that the target shows: they stay complete.  OSError or StorageError as it comes.
        If the process dies inside, the next call continues.
        """
        self._flushed_bytes = {each.name: set() for each in (*outputs, *shown)}
        for each in shown:
            self._flushed_bytes[each.name] |= {each.size_bytes, each.resume_bytes}
        # Pieces first: what lies in `output/` may be the beginning of one.
        left = sorted(outputs, key=lambda output: output.piece is None)
        for _ in range(2):  # one that is being moved may have been seen in neither place
            left = [output for output in left if not self._is_copied(output, shown)]
        for folder in (self.target / OUTPUT, self.target / PIECES):
            if folder.is_dir():
                flush_tree(folder)
        fs.flush(self.target)
        self._copied |= set(outputs) - set(left)
        return [output.name for output in left]

    def drop_unneeded(self, needed: Collection[RunOutput], confirm: Callable[[], None] = lambda: None) -> None:
        """Remove all bytes at the target that belong to none of these.

        `confirm` is called before each removal, and raises if this process may not write there any more.
        """
        sizes: dict[str, int] = {}
        for output in needed:
            sizes[output.place] = max(output.size_bytes, sizes.get(output.place, 0))
        for folder in (self.target / OUTPUT, self.target / PIECES):
            for path in fs.tree_files(folder):
                size = sizes.get(f"{folder.name}/{path}", -1)
                if 0 <= size < (folder / path).lstat().st_size:
                    confirm()
                    os.truncate(folder / path, size)
                elif size < 0 and not self._is_moved_and_needed(folder / path, needed):
                    confirm()
                    (folder / path).unlink()
                    with suppress(OSError):
                        for parent in path.parents:
                            (folder / parent).rmdir()
        self._copied &= set(needed)

    def _is_moved_and_needed(self, path: Path, needed: Collection[RunOutput]) -> bool:
        place = path.relative_to(self.target).parts
        name = Path(*place[2:]).as_posix() if place[0] == PIECES else ""
        return any(path == OutputPlace(self.target).find(output) for output in needed if output.name == name)

    def _is_copied(self, output: RunOutput, shown: Collection[RunOutput]) -> bool:
        """Copy an output; return False if the source does not have it, or it changed meanwhile."""
        if output in self._copied or (output in shown and not OutputPlace(self.target).lacking([output])):
            return True
        path = self.source.find(output)
        if path is None:
            return False
        try:
            with open_plain(path) as source:
                self._fill(source, output)
        except CheckpointError:  # it is just being moved, or written again
            return False
        return output.is_whole(self.target / output.place)

    def _fill(self, source: BinaryIO, output: RunOutput) -> None:
        target, current = self.target / output.place, self.target / OUTPUT / output.name
        for place in (output.place, f"{OUTPUT}/{output.name}"):
            self._make_folders(place)
        if output.piece is not None and not os.path.lexists(target) and self._common_bytes(source, current, output):
            os.rename(current, target)
        begin = self._common_bytes(source, target, output)
        if begin is None:
            self._move_away(target, output.name)
        if begin != output.size_bytes or not target.exists():
            extend(source, target, begin or 0, output.size_bytes, self.check)
            with target.open("r+b", buffering=0) as new:
                os.pwrite(new.fileno(), output.head, 0)
            time_ns = output.mtime_ns or os.fstat(source.fileno()).st_mtime_ns
            os.utime(target, ns=(time_ns, time_ns))

    def _common_bytes(self, source: BinaryIO, target: Path, output: RunOutput) -> int | None:
        """Return how many bytes of the target stay; None if another file, or something else, has its name.

        A crash of the machine may have torn what was appended last, and belongs to no checkpoint that is shown.
        """
        if not os.path.lexists(target):
            return 0
        if target.is_symlink() or not target.is_file():
            return None
        skip = len(output.head)
        with target.open("rb", buffering=0) as new:
            size: int = min(os.fstat(new.fileno()).st_size, output.size_bytes)
            known = {*self._flushed_bytes[output.name], size - FLUSH_BYTES - STEP_BYTES}
            for at in sorted(known, reverse=True):
                if skip < at <= size and _are_same(source, new, at, skip):
                    return at
            return 0 if _are_same(source, new, size, skip) else None

    def _move_away(self, path: Path, name: str) -> None:
        """Move what has the name of an output to the pieces: checkpoints that are shown may need it."""
        top = Path(name).parts[0]
        numbers = itertools.count(_MOVED_AWAY)
        number = next(each for each in numbers if not os.path.lexists(self.target / piece_place(each, top)))
        self._make_folders(piece_place(number, name))
        os.rename(path, self.target / piece_place(number, name))

    def _make_folders(self, place: str) -> None:
        """Make the folders above a file; a file that has the name of one is moved away."""
        for parent in reversed(Path(place).parents[:-1]):
            path = self.target / parent
            if parent.parts[0] == OUTPUT and len(parent.parts) > 1 and path.is_file() and not path.is_symlink():
                self._move_away(path, Path(*parent.parts[1:]).as_posix())
            make_folder(path)


def shortened(names: Sequence[str]) -> str:
    """Return the first of some names, and how many there are."""
    return ", ".join(names[:5]) + (f", ... ({len(names):,} files)" if len(names) > 5 else "")


def _are_same(old: BinaryIO, new: BinaryIO, length: int, skip: int) -> bool:
    """Return True if both files begin and end in the same way up to that length, the first bytes left out."""
    head, tail = (skip, min(length, EDGE_BYTES)), (max(skip, length - EDGE_BYTES), length)
    return all(
        os.pread(old.fileno(), max(0, end - begin), begin) == os.pread(new.fileno(), max(0, end - begin), begin)
        for begin, end in (head, tail)
    )
