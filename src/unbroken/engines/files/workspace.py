"""The folder in which a program works, carried from attempt to attempt, and made what it was at a checkpoint.

Between attempts it is `output` in the run's folder; an attempt renames it into its own.  So what the program has
written lies on the disk once, and a resumed program finds it where it left it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.files.outputs import (
    REWRITTEN,
    OutputFile,
    OutputList,
    is_as_listed,
    put_head_back,
)
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.layout import OUTPUT, PIECES, piece_place
from unbroken.runs.own_folder import confirm_all_own
from unbroken.system import fs
from unbroken.system.clock import folder_stamp, utc_now
from unbroken.system.copying import append_range

REPLACED = "replaced"
# So many of the folders below `replaced` stay.
REPLACED_KEPT = 2
_STAMP = re.compile(r"(?:\d{6}_)?\d{8}T\d{6}Z(?:-\d+)*")
# A file that a resumed program might begin again is copied first: one that has grown always, others up to this size.
SMALL_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Workspace:
    """The program's folder of one attempt, in the folder of its run."""

    run_folder: Path
    folder: Path
    tell: Callable[[str], None]

    @property
    def resting(self) -> Path:
        """Where the folder is between two attempts."""
        return self.run_folder / OUTPUT

    def take(self) -> None:
        """Bring the folder into the attempt; make a new one where there is none."""
        confirm_all_own([self.resting, self.run_folder / PIECES, self.run_folder / REPLACED])
        if self.folder.is_dir():
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(self.resting, self.folder)
        except FileNotFoundError:
            self.folder.mkdir()

    def give_back(self, is_owner: bool = False) -> None:
        """Bring the folder out of the attempt, whose program is gone.

        After a later attempt has begun, only the lease owner may do so (`is_owner`).
        """
        is_outdated = self._is_outdated()
        if not self.folder.is_dir() or self.folder.is_symlink() or (is_outdated and not is_owner):
            return
        confirm_all_own([self.folder])
        if os.path.lexists(self.resting):
            if is_outdated:
                return
            # Of an attempt that slept, and did not know that it was replaced.
            stray = self.run_folder / REPLACED / fs.unique_name(OUTPUT).lstrip(".")
            stray.parent.mkdir(exist_ok=True)
            os.rename(self.resting, stray)
        os.rename(self.folder, self.resting)
        fs.flush_folder(self.run_folder)

    def _is_outdated(self) -> bool:
        """Return True if an attempt with a higher token holds the run, or has held it."""
        own = self.folder.parent.name
        tokens = [path.stem for path in (self.run_folder / "lease").glob("*.json") if path.stem.isdecimal()]
        return own.isdecimal() and any(int(token) > int(own) for token in tokens)

    def copy_back(self) -> None:
        """Copy the folder out of an attempt whose program may still write in it."""
        for path in self.run_folder.glob(f".{OUTPUT}-*"):  # of a job that was killed meanwhile
            if fs.is_unique_name(path.name):
                fs.remove_tree(path)
        draft = self.run_folder / fs.unique_name(OUTPUT)
        try:
            _copy_tree(self.folder, draft)
        except OSError:
            fs.remove_tree(draft)
            raise
        os.rename(draft, self.resting)
        fs.flush_folder(self.run_folder)

    # --- to what it was at a checkpoint ---

    def restore(self, origin: Checkpoint | None, listed: OutputList, is_output: Callable[[str], bool]) -> OutputList:
        """Make the folder hold the outputs of a checkpoint and nothing else; return what is there now.

        Files that are no outputs are removed: restart files come from the checkpoint.  Newer ones go to `replaced`.
        CheckpointError if an output is shorter than listed, or differs.
        """
        sequence = origin.passport.sequence if origin else 0
        aside = _Aside(self.run_folder / REPLACED, self.folder)
        pieces = _Pieces(self.run_folder / PIECES)
        removed: list[str] = []
        for name in self._names():
            if (self.folder / name).is_symlink() or not is_output(name):
                (self.folder / name).unlink()
                removed.append(name)
            elif name not in listed.files or listed.files[name].is_rewritten:
                aside.move(name)
        remove_emptied(self.folder, [*aside.names, *removed])  # a file, or a link, may have had the name of a folder
        found: dict[str, OutputFile] = {}
        for name, entry in listed.files.items():
            if entry.resume_bytes < 0:
                aside.move(name)
            elif entry.is_rewritten:
                self._put_rewritten(origin, name, entry)
                found[name] = entry
            elif self._has_content(name, entry, listed, pieces, aside):
                self._cut(name, entry, aside)
                self._protect(name, entry, sequence, pieces, listed.algorithm)
                found[name] = entry
            else:
                doubt = without(name)
                self.tell(doubt)
                listed = listed.with_doubt(doubt)
        for name, target in listed.links.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).symlink_to(target)
        pieces.drop_unused({(piece.sequence, piece.name) for piece in listed.pieces}, sequence)
        remove_emptied(self.folder, [*aside.names, *removed])
        if aside.names:
            shown = ", ".join(aside.names[:5]) + (", ..." if len(aside.names) > 5 else "")
            self.tell(f"moved to {aside.target}, being newer than the checkpoint: {shown}")
        return OutputList(found, listed.links, listed.pieces, listed.doubts, listed.algorithm)

    def _names(self) -> list[str]:
        return [name.as_posix() for name in fs.tree_files(self.folder)]

    def _has_content(self, name: str, entry: OutputFile, listed: OutputList, pieces: _Pieces, aside: _Aside) -> bool:
        """Put an output in place, also where a later segment has begun it again; False if it is gone altogether."""
        path = self.folder / name
        if os.path.lexists(path) and is_as_listed(path, entry, listed.algorithm):
            return True
        for piece in pieces.of(name):
            if is_as_listed(piece, entry, listed.algorithm):
                aside.move(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                os.rename(piece, path)
                return True
        if os.path.lexists(path):
            state = path.lstat()
            if not entry.has_grown and entry.is_continued is None and state.st_mtime_ns != entry.mtime_ns:
                aside.move(name)  # a file that the program writes as a whole, and has written again
                return False
            size = state.st_size
            raise CheckpointError(
                f"{path}: {size:,} bytes that are not those of the checkpoint, which has {entry.resume_bytes:,}; put "
                "the file back, or go back to a checkpoint before: unbroken back"
            )
        return False

    def _put_rewritten(self, origin: Checkpoint | None, name: str, entry: OutputFile) -> None:
        if origin is None:
            return
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        _copy(origin.folder / REWRITTEN / name, self.folder / name)
        os.utime(self.folder / name, ns=(entry.mtime_ns, entry.mtime_ns))

    def _cut(self, name: str, entry: OutputFile, aside: _Aside) -> None:
        """Cut a file to the length that belongs to the state; the tail goes to `replaced`."""
        cut(self.folder / name, entry, lambda: aside.place(name))

    def _protect(self, name: str, entry: OutputFile, sequence: int, pieces: _Pieces, algorithm: str) -> None:
        """Keep the content of a file that the program may begin again."""
        if entry.is_continued:
            return
        path, kept = self.folder / name, pieces.place(sequence, name)
        if entry.is_continued is None and kept.is_file() and is_as_listed(kept, entry, algorithm):
            return  # by an attempt before
        if entry.is_continued is False:
            os.rename(path, kept)
        elif path.stat().st_size <= SMALL_BYTES or entry.has_grown:
            os.rename(path, kept)
            _copy(kept, path)


def without(name: str) -> str:
    """Return the doubt about an output that is not as it was at the checkpoint, until the program writes it again."""
    return f"{name}: it was removed or written again after the checkpoint, and the result lacks it as it was then"


class _Aside:
    """A new folder below `replaced`, made when it is needed."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder = root, folder
        self.target = fs.numbered(root, folder_stamp(utc_now()))
        self.names: list[str] = []

    def place(self, name: str) -> Path:
        """Return a free place for a file, its folder made."""
        if not self.names:
            self._forget_older()
        self.names.append(name)
        target = self.target / name
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def move(self, name: str) -> None:
        """Move a file there, if it is there."""
        if os.path.lexists(self._folder / name):
            os.rename(self._folder / name, self.place(name))

    def _forget_older(self) -> None:
        if self._root.is_dir():
            ours = [path for path in fs.by_number(self._root) if _STAMP.fullmatch(path.name)]
            for old in ours[: -REPLACED_KEPT + 1]:
                fs.remove_tree(old)


class _Pieces:
    """`pieces/<sequence>/NAME`: outputs as they were at the checkpoint of that number."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, name: str) -> Iterator[Path]:
        """Yield the pieces of that name, the newest first."""
        for folder in self._folders():
            if (folder / name).is_file():
                yield folder / name

    def place(self, sequence: int, name: str) -> Path:
        """Return the place of a piece, its folder made."""
        path = piece_path(self._root.parent, sequence, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def drop_unused(self, used: set[tuple[int, str]], sequence: int | None) -> None:
        """Remove pieces that no checkpoint up to `sequence` needs, but not those that were made just now."""
        for folder in self._folders():
            number = int(folder.name)
            if number == sequence:
                continue
            for name in fs.tree_files(folder):
                if (number, name.as_posix()) not in used:
                    (folder / name).unlink()
                    remove_emptied(folder, [name.as_posix()])
            with suppress(OSError):
                folder.rmdir()

    def _folders(self) -> list[Path]:
        if not self._root.is_dir():
            return []
        found = [path for path in self._root.iterdir() if path.name.isdecimal() and path.is_dir()]
        return sorted(found, key=lambda path: int(path.name), reverse=True)


def pieces_of(run_folder: Path, name: str) -> Iterator[tuple[int, Path]]:
    """Yield the pieces of an output, each with the number of its checkpoint, the newest first."""
    for path in _Pieces(run_folder / PIECES).of(name):
        yield int(path.relative_to(run_folder / PIECES).parts[0]), path


def drop_pieces(run_folder: Path, listed: OutputList) -> None:
    """Remove the copies of outputs that a finished run continued, and so does not need."""
    _Pieces(run_folder / PIECES).drop_unused({(piece.sequence, piece.name) for piece in listed.pieces}, None)


def piece_path(run_folder: Path, sequence: int, name: str) -> Path:
    """Return where an output lies as it was at the checkpoint of that number."""
    return run_folder / piece_place(sequence, name)


def cut(path: Path, entry: OutputFile, place: Callable[[], Path]) -> bool:
    """Cut a file to the length that belongs to the state; the tail goes to `place()`.  True if there was one."""
    if path.stat().st_nlink > 1:  # a result of the run has the same bytes
        _make_private(path)
    size = path.stat().st_size
    if size > entry.resume_bytes:
        with place().open("wb") as tail:
            append_range(path, tail, entry.resume_bytes, size)
        with path.open("r+b") as file:
            file.truncate(entry.resume_bytes)
            os.fsync(file.fileno())
    if size > entry.resume_bytes or entry.head_base64:
        put_head_back(path, entry)
        os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))
    return size > entry.resume_bytes


def put_state_back(origin: Checkpoint, names: Mapping[str, str], folder: Path) -> None:
    """Copy state files to where the program left them, by their names in the checkpoint, with their times.

    Copies, because the program may write in them.
    """
    for stored, name in names.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(fs.unique_name("state"))
        _copy(origin.folder / stored, draft)
        os.replace(draft, path)  # in one step: a half copied state might be taken for a new one


def _copy(source: str | Path, target: str | Path) -> None:
    """Copy a file with its times, by the kernel, holes left as they are where the file system can do that."""
    fs.copy_file(Path(source), Path(target))


def _make_private(path: Path) -> None:
    draft = path.with_name(fs.unique_name("private"))
    _copy(path, draft)
    os.replace(draft, path)


def _copy_tree(source: Path, target: Path) -> None:
    """Copy files, folders and links of a program that may still write; a pipe would be waited for."""
    for base, folders, names in os.walk(source):
        below = target / os.path.relpath(base, source)
        below.mkdir(parents=True, exist_ok=True)
        for name in (*names, *folders):
            path = Path(base) / name
            with suppress(FileNotFoundError):  # it has just renamed or removed it
                mode = path.lstat().st_mode
                if stat.S_ISLNK(mode):
                    os.symlink(os.readlink(path), below / name)
                elif stat.S_ISREG(mode):
                    _copy(path, below / name)


def remove_emptied(root: Path, names: Iterable[str]) -> None:
    """Remove the folders below `root` that have become empty because these files were taken away."""
    for folder in sorted({parent for name in names for parent in Path(name).parents}, reverse=True):
        if folder != Path():
            with suppress(OSError):
                (root / folder).rmdir()
