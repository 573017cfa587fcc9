"""The replica of a run, `<folder of copies>/<run>`: laid out as `results/<run>`, with the same `copies.json` in both.

The file holds a random number of the run.  A folder with another number is never written, and nothing in it is removed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from unbroken.errors import ConfigError, ForeignFolderError, StorageError, UnbrokenError
from unbroken.store.checkpoints import Store
from unbroken.store.layout import Format, RunFolder
from unbroken.store.own_folder import confirm_all_own, confirm_own
from unbroken.store.run import RunSpec
from unbroken.store.select import refuse_newer
from unbroken.system import fs

NOTE = "copies.json"
FORMAT = Format()
# A file server that takes longer does not keep a campaign from starting.
ANSWER_SECONDS = 20.0


@dataclass(frozen=True)
class Note:
    """Identify the run whose copies a folder holds: its name, its number, and its folder."""

    run: str
    number: str
    root: str = ""


def read_note(root: Path) -> Note | None:
    """Return the note in a folder, None if there is none; raise ConfigError if it is malformed, OSError as it comes."""
    path = root / NOTE
    try:
        return Note(**FORMAT.read(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError) as error:
        raise ConfigError([f"{path}: not a note of unbroken ({error}); nothing there was touched"]) from error


def write_note(root: Path, note: Note) -> None:
    """Replace the note in a folder in one step."""
    FORMAT.write(root / NOTE, vars(note))


class Replica:
    """The copies of one run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = RunFolder(root.name, store=root)
        self.store = Store(self.folder.checkpoints)

    def take_up(self, run: RunFolder) -> None:
        """Make the folder unless it is there, and number the run unless it has a number.  For the owner of the lease.

        ConfigError if the folder is not this run's, FormatError if a newer unbroken wrote the run or has copied there,
        Raise OSError or StorageError if it is out of reach.
        """
        if line := self.refusal(run):
            raise ConfigError([line])
        refuse_newer(run)
        refuse_newer(self.folder)
        note = read_note(run.root) or Note(run.name, uuid4().hex)
        note = replace(note, root=str(run.root.resolve()))  # the working directory may have been moved
        if read_note(run.root) != note:
            write_note(run.root, note)
        if read_note(self.root) != note:
            self.root.mkdir(exist_ok=True)
            write_note(self.root, note)
            fs.flush(self.root.parent)

    def confirm(self, run: RunFolder) -> None:
        """Raise ConfigError if the folder is another run's by now, or this one's restored elsewhere.

        StorageError if it is gone, ForeignFolderError if it, or a folder in it, is a link or a mounted file system.
        """
        note = read_note(self.root)
        if note is None:
            raise StorageError(f"{self.root}: gone")
        if note != read_note(run.root):
            raise ConfigError([f"{self.root}: not this run's any more"])
        self._confirm_own()

    def _confirm_own(self) -> None:
        confirm_own(self.root)
        confirm_all_own(self.folder.own)

    def refusal(self, run: RunFolder) -> str:
        """Return why a run cannot have its copies here, in one line; empty if it can.

        Raise OSError or StorageError if the location is out of reach, which says nothing.
        """
        where, elsewhere = f"runs.{run.name}.copies.folder", f"mv {self.root} {self.root}.old, or name another folder"
        try:
            own = read_note(run.root)
            if line := self._wrong_location(run, is_known=own is not None):
                return f"{where}: {line}"
            note, is_there = read_note(self.root), os.path.lexists(self.root)
            if is_there:
                self._confirm_own()
        except (ConfigError, ForeignFolderError) as error:
            return f"{where}: {error}; type: {elsewhere}"
        if note is None and is_there and not all(map(fs.is_unique_name, os.listdir(self.root))):
            return f"{where}: {self.root}: no folder of copies (no {NOTE} in it); type: {elsewhere}"
        if note is None or (own is not None and note.number == own.number):
            return ""
        if os.path.lexists(run.root):
            found = f"holds the copies of another run of this name, {note.root}"
        else:
            found = f"holds copies of {note.root}, and {run.root} is not there (is its disk mounted?)"
            elsewhere = f"unbroken restore {run.name} --from {self.root.parent}, or {elsewhere}"
        return f"{where}: {self.root} {found}; nothing there was touched; type: {elsewhere}"

    def _wrong_location(self, run: RunFolder, *, is_known: bool) -> str:
        location = self.root.parent
        try:
            os.stat(f"{location}/.")
        except (FileNotFoundError, NotADirectoryError) as error:
            if is_known:
                raise StorageError(f"{location}: gone") from error
            return f"{location}: no such folder; type: mkdir -p {location}"
        if self.root.resolve().is_relative_to(run.root.resolve()):
            return f"{location}: leads into {run.root}, allowed: a folder on another disk or file server"
        return ""


def mistakes(runs: Iterable[RunSpec], base: Path) -> list[str]:
    """Return a line for each run that cannot have its copies where the config says.

    A location that is out of reach stops only a run that has not begun: there may be copies of it.
    """
    locations = {RunFolder(run.name, base): base / run.copies.folder for run in runs if run.copies}
    answers = {run: (f"{location}: no answer in {ANSWER_SECONDS:g} s", "") for run, location in locations.items()}

    def ask() -> None:
        for run, location in locations.items():
            try:
                answers[run] = "", Replica(location / run.name).refusal(run)
            except (OSError, UnbrokenError) as error:
                answers[run] = said(error), ""

    thread = threading.Thread(target=ask, name="copies-look", daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    found = []
    for run, (problem, line) in answers.items():
        if problem and read_note(run.root) is None:
            line = f"runs.{run.name}.copies.folder: {problem}; start again when that answers: there may be copies of it"
        found += [line] if line else []
    return found


def said(error: Exception) -> str:
    """Return what a disk or a file server says, with the path; the text of another error."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
