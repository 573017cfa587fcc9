"""Carry the program's folder from attempt to attempt, and restore it to what it was at a checkpoint.

Between attempts it is `output` in the run's folder; an attempt renames it into its own.  So what the program has
written lies on the disk once, and a resumed program finds it where it left it.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from unbroken.engines.files.content import OutputFile, cut, is_as_listed
from unbroken.engines.files.outputs import REWRITTEN, OutputList, drop_pieces, piece_path, pieces_of, remove_emptied
from unbroken.engines.files.stored import REPLACED, Replaced
from unbroken.errors import CheckpointError
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.layout import OUTPUT, PIECES
from unbroken.store.own_folder import confirm_all_own
from unbroken.system import copying, fs

logger = logging.getLogger(__name__)

# So many of the folders below `replaced` stay.
REPLACED_KEPT = 2
# A file that a resumed program might begin again is copied first: one that has grown always, others up to this size.
SMALL_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Workspace:
    """Manage the program's folder of one attempt, in the folder of its run."""

    run_folder: Path
    folder: Path

    @property
    def resting(self) -> Path:
        """Return where the folder is between two attempts."""
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

    def give_back(self, *, is_owner: bool = False) -> None:
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
        fs.flush(self.run_folder)

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
        fs.flush(self.run_folder)

    # --- to what it was at a checkpoint ---

    def restore(self, origin: Checkpoint | None, listed: OutputList, is_output: Callable[[str], bool]) -> OutputList:
        """Make the folder hold the outputs of a checkpoint and nothing else; return what is there now.

        Files that are no outputs are removed: restart files come from the checkpoint.  Newer ones go to `replaced`.
        Raise CheckpointError if an output is shorter than listed, or differs.
        """
        sequence = origin.passport.sequence if origin else 0
        aside, removed = Replaced(self.run_folder, self.folder, most=REPLACED_KEPT), []
        for name in [each.as_posix() for each in fs.tree_files(self.folder)]:
            if (self.folder / name).is_symlink() or not is_output(name):
                (self.folder / name).unlink()
                removed.append(name)
            elif name not in listed.files or listed.files[name].is_rewritten:
                aside.move(name)
        remove_emptied(self.folder, [*aside.names, *removed])  # a file, or a link, may have had the name of a folder
        found = {}
        for name, entry in listed.files.items():
            if entry.resume_bytes < 0:
                aside.move(name)
            elif self._is_put_back(origin, name, entry, listed.algorithm, aside):
                self._protect(name, entry, sequence, listed.algorithm)
                found[name] = entry
            else:
                logger.warning(without(name))
                listed = listed.with_doubt(without(name))
        for name, target in listed.links.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).symlink_to(target)
        drop_pieces(self.run_folder, listed, sequence)
        remove_emptied(self.folder, [*aside.names, *removed])
        if aside.names:
            shown = ", ".join(aside.names[:5]) + (", ..." if len(aside.names) > 5 else "")
            logger.info(f"moved to {aside.target}, being newer than the checkpoint: {shown}")
        return replace(listed, files=found)

    def _is_put_back(
        self, origin: Checkpoint | None, name: str, entry: OutputFile, algorithm: str, aside: Replaced
    ) -> bool:
        """Make an output what it was, also if a later segment has begun it again; return False if it is gone."""
        path = self.folder / name
        if entry.is_rewritten:
            if origin is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                copying.copy_file(origin.folder / REWRITTEN / name, path)
                os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))
            return True
        if not (os.path.lexists(path) and is_as_listed(path, entry, algorithm)):
            pieces = (piece for _, piece in pieces_of(self.run_folder, name) if is_as_listed(piece, entry, algorithm))
            piece = next(pieces, None)
            if piece is None:
                self._confirm_may_lack(name, entry, aside)
                return False
            aside.move(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.rename(piece, path)
        cut(path, entry, lambda: aside.place(name))
        return True

    def _confirm_may_lack(self, name: str, entry: OutputFile, aside: Replaced) -> None:
        """Move away a file that was written again as a whole; raise CheckpointError for any other that is there."""
        path = self.folder / name
        if not os.path.lexists(path):
            return
        state = path.lstat()
        if entry.has_grown or entry.is_continued is not None or state.st_mtime_ns == entry.mtime_ns:
            raise CheckpointError(
                f"{path}: {state.st_size:,} bytes that are not those of the checkpoint, which has "
                f"{entry.resume_bytes:,}; put the file back, or go back to a checkpoint before: unbroken back"
            )
        aside.move(name)

    def _protect(self, name: str, entry: OutputFile, sequence: int, algorithm: str) -> None:
        """Keep the content of a file that the program may begin again."""
        if entry.is_continued or entry.is_rewritten:
            return
        path, kept = self.folder / name, piece_path(self.run_folder, sequence, name)
        if entry.is_continued is None and kept.is_file() and is_as_listed(kept, entry, algorithm):
            return  # by an attempt before
        if entry.is_continued is False or entry.has_grown or path.stat().st_size <= SMALL_BYTES:
            kept.parent.mkdir(parents=True, exist_ok=True)
            os.rename(path, kept)
            if entry.is_continued is None:
                copying.copy_file(kept, path)


def without(name: str) -> str:
    """Return the doubt about an output that is not as it was at the checkpoint, until the program writes it again."""
    return f"{name}: it was removed or written again after the checkpoint, and the result lacks it as it was then"


def put_state_back(origin: Checkpoint, names: Mapping[str, str], folder: Path) -> None:
    """Copy state files to where the program left them, by their names in the checkpoint, with their times.

    Copies, because the program may write in them.
    """
    for stored, name in names.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(fs.unique_name("state"))
        copying.copy_file(origin.folder / stored, draft)
        os.replace(draft, path)  # in one step: a half copied state might be taken for a new one


def put_path_back(names: Sequence[str], before: Path, folder: Path) -> None:
    """Put the path of `folder` in place of that of the program's folder in an attempt before; times stay.

    `before` is that folder in any attempt; `names` are the files in which the program notes where it is.
    """
    attempts = re.escape(os.fsencode(before.parents[1].resolve()))
    own = attempts + rb"/\d+/" + re.escape(os.fsencode(before.name)) + rb"(?![\w.-])"
    for name in names:
        path = folder / name
        times, content = path.stat(), path.read_bytes()
        if (changed := re.sub(own, lambda _: os.fsencode(folder.resolve()), content)) != content:
            path.write_bytes(changed)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


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
                    copying.copy_file(path, below / name)
