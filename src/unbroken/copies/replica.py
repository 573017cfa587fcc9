"""The replica of a run, `<folder of copies>/<run>`: laid out as `results/<run>`, with a note of whose copies it holds.

A run has a random number of its own, in `results/<run>/number.json`.  The note has the same one; a folder with another
number is never written, and nothing in it is removed.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from unbroken.errors import ConfigError, ForeignFolderError, StorageError, UnbrokenError
from unbroken.runs.known_formats import refuse_newer
from unbroken.runs.layout import RunFolder
from unbroken.runs.own_folder import confirm_all_own, confirm_own
from unbroken.runs.run import Run
from unbroken.runs.store import Store
from unbroken.system import fs, jsontext

NOTE = "copies.json"
_NUMBER = "number.json"
# A file server that takes longer does not keep a campaign from starting.
ANSWER_SECONDS = 20.0


@dataclass(frozen=True)
class Note:
    """Whose copies a folder holds: the run, its number, and where it stands."""

    run: str
    number: str
    root: str


class Replica:
    """The copies of one run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = RunFolder(root.name, store=root)
        self.store = Store(self.folder.checkpoints)

    def note(self) -> Note | None:
        """Return the note, None if there is none; ConfigError if unbroken has not written it, OSError as it comes."""
        path = self.root / NOTE
        try:
            return Note(**jsontext.parse(path.read_text()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, TypeError) as error:
            raise ConfigError([f"{path}: not a note of unbroken ({error}); nothing there was touched"]) from error

    def write_note(self, note: Note) -> None:
        """Replace the note in one step."""
        fs.write_atomic(self.root / NOTE, json.dumps(vars(note), indent=2) + "\n")

    def take_up(self, run: RunFolder) -> None:
        """Make the folder unless it is there, and give the run a number if it has none.  For the owner of the lease.

        ConfigError if the folder is not this run's, FormatError if a newer unbroken has copied there, OSError or
        StorageError if it is out of reach.
        """
        if line := self.refusal(run):
            raise ConfigError([line])
        refuse_newer(self.folder)
        if not number_of(run.root):
            write_number(run.root, uuid4().hex)
        wanted = Note(run.name, number_of(run.root), str(run.root.resolve()))
        if self.note() != wanted:  # there is none, or the working directory was moved
            self.root.mkdir(exist_ok=True)
            self.write_note(wanted)
            fs.flush_folder(self.root.parent)

    def confirm(self, number: str) -> None:
        """Raise ConfigError if the folder is another run's by now, or this one's restored elsewhere.

        ForeignFolderError if it, or a folder in it, is a link or a mounted file system.
        """
        found = self.note()
        if found is None or found.number != number:
            raise ConfigError([f"{self.root}: not this run's any more"])
        self._confirm_own()

    def _confirm_own(self) -> None:
        confirm_own(self.root)
        confirm_all_own(self.folder.own)

    def refusal(self, run: RunFolder) -> str:
        """Return why a run cannot have its copies here, in one line; empty if it can.

        OSError or StorageError if the location is out of reach, which says nothing.
        """
        own, where = number_of(run.root), f"runs.{run.name}.copies.folder"
        if line := self._wrong_location(run, is_known=bool(own)):
            return f"{where}: {line}"
        elsewhere = f"mv {self.root} {self.root}.old, or name another folder"
        try:
            note, is_there = self.note(), os.path.lexists(self.root)
            if is_there:
                self._confirm_own()
        except (ConfigError, ForeignFolderError) as error:
            return f"{where}: {error}; type: {elsewhere}"
        if note is None and is_there and not all(map(fs.is_unique_name, os.listdir(self.root))):
            return f"{where}: {self.root}: no folder of copies (no {NOTE} in it); type: {elsewhere}"
        if note is None or note.number == own:
            return ""
        if os.path.lexists(run.root):
            found = f"holds the copies of another run of this name, {note.root}"
        else:
            found = f"holds copies of {note.root}, and {run.root} is not there (is its disk mounted?)"
            elsewhere = f"unbroken restore {run.name} --from {self.root.parent}, or {elsewhere}"
        return f"{where}: {self.root} {found}; nothing there was touched; type: {elsewhere}"

    def _wrong_location(self, run: RunFolder, *, is_known: bool) -> str:
        location, is_folder = self.root.parent, False
        with suppress(FileNotFoundError, NotADirectoryError):
            is_folder = stat.S_ISDIR(os.stat(location).st_mode)
        if not is_folder and is_known:
            raise StorageError(f"{location}: gone")
        if not is_folder:
            return f"{location}: no such folder; type: mkdir -p {location}"
        if self.root.resolve().is_relative_to(run.root.resolve()):
            return f"{location}: leads into {run.root}, allowed: a folder on another disk or file server"
        return ""


def number_of(root: Path) -> str:
    """Return the number of the run whose folder this is; empty if it has none yet."""
    try:
        return str(jsontext.parse((root / _NUMBER).read_text())["number"])
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (ValueError, TypeError, KeyError):
        return "not readable"


def write_number(root: Path, number: str) -> None:
    """Give the run whose folder this is a number.  For the owner of the lease."""
    fs.write_atomic(root / _NUMBER, json.dumps({"number": number}) + "\n")


def mistakes(runs: Iterable[Run], base: Path) -> list[str]:
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
        if problem and not number_of(run.root):
            line = f"runs.{run.name}.copies.folder: {problem}; start again when that answers: there may be copies of it"
        found += [line] if line else []
    return found


def said(error: Exception) -> str:
    """Return what a disk or a file server says, with the path; the text of another error."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
