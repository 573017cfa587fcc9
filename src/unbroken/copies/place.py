"""The second place of a run, `<folder>/<run>`: laid out as `results/<run>`, with a note of whose copies it holds.

A run has a random number of its own, in `results/<run>/number.json`.  The note has the same one; a folder with another
number is never written, and nothing in it is removed.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path

from unbroken.errors import ConfigError, ForeignFolderError, StorageError
from unbroken.runs.known_formats import refuse_newer_files
from unbroken.runs.layout import RESULTS, RunFolder
from unbroken.runs.own_folder import confirm_all_own, confirm_own
from unbroken.runs.run import Run
from unbroken.runs.run_output import OUTPUT, PIECES
from unbroken.runs.store import Store
from unbroken.system import fs, jsontext
from unbroken.system.clock import utc_now

NOTE = "copies.json"
_NUMBER = "number.json"
# Mounted everywhere under one name; of others the machine's name tells two of them apart.
_SHARED = {"beegfs", "gpfs"}


@dataclass(frozen=True)
class Note:
    """Whose copies a folder holds: the run, its number, and where it stands, by path and file system."""

    run: str
    number: str
    root: str
    file_system: str
    noted_utc: str


class SecondPlace:
    """`<folder>/<run>`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = Store(root / "checkpoints")
        self.history, self.accepted, self.segments = root / "history.jsonl", root / "accepted.json", root / "segments"

    def note(self) -> Note | None:
        """What it says of itself, None if nothing; ConfigError if that is no note of ours, OSError as it comes."""
        path = self.root / NOTE
        try:
            return Note(**jsontext.parse(path.read_text()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, TypeError) as error:
            raise ConfigError([f"{path}: not a note of unbroken ({error}); nothing there was touched"]) from error

    def write_note(self, note: Note) -> None:
        """Replaces it in one step."""
        fs.write_atomic(self.root / NOTE, _text(note))

    def confirm_own(self) -> None:
        """ForeignFolderError if it, or a folder in it, is a link or a mounted file system."""
        confirm_own(self.root)
        confirm_all_own([self.store.root, self.store.archive, self.segments, self.root / OUTPUT, self.root / PIECES])

    def open(self, run: Run, base: Path) -> None:
        """Makes it, or takes it up; ConfigError if it is not this run's, OSError or StorageError if it is out of reach.

        FormatError if a newer unbroken has copied there.  The run gets a number if it has none.  For the holder of the
        lease.
        """
        if line := refusal(run, base):
            raise ConfigError([line])
        refuse_newer_files(self.store, self.segments, self.history)
        root = RunFolder(run.name, base).root
        if not number_of(root):
            write_number(root, new_number())
        wanted = note_of(RunFolder(run.name, base))
        found = self.note()
        if found is None:
            self._make(wanted)
        elif replace(found, noted_utc="") != replace(wanted, noted_utc=""):
            self.write_note(wanted)  # the working directory was moved

    def confirm(self, number: str) -> None:
        """ConfigError if somebody else has taken it since: another run, or this one restored elsewhere."""
        found = self.note()
        if found is None or found.number != number:
            raise ConfigError([f"{self.root}: not this run's any more; nothing more is copied there"])
        self.confirm_own()

    def _make(self, note: Note) -> None:
        """In one step, so that there is never a folder without a note; whoever is quicker is the owner."""
        draft = self.root.with_name(fs.unique_name(self.root.name))
        draft.mkdir()
        try:
            fs.write_new(draft / NOTE, _text(note))
            os.rename(draft, self.root)
        except OSError:
            fs.remove_tree(draft)
            raise
        fs.flush_folder(self.root.parent)


def place_of(run: Run, base: Path) -> SecondPlace | None:
    """The second place that the config names for a run."""
    return SecondPlace(base / run.copies.folder / run.name) if run.copies else None


def number_of(root: Path) -> str:
    """The number of the run whose folder this is; empty if it has none yet."""
    try:
        return str(jsontext.parse((root / _NUMBER).read_text())["number"])
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (ValueError, TypeError, KeyError):
        return "not readable"


def new_number() -> str:
    """One that no other run has."""
    return os.urandom(16).hex()


def write_number(root: Path, number: str) -> None:
    """Gives the run whose folder this is a number.  For the holder of the lease."""
    fs.write_atomic(root / _NUMBER, json.dumps({"number": number, "made_utc": utc_now()}) + "\n")


def note_of(places: RunFolder) -> Note:
    """What a second place of this run says of itself."""
    root = places.root.resolve()
    return Note(places.name, number_of(root), str(root), file_system_of(root), utc_now())


def refusal(run: Run, base: Path) -> str:
    """Why a run cannot have its copies where the config says, in one line; empty if it can.

    OSError if the place, or the run, is out of reach, which says nothing.
    """
    place = place_of(run, base)
    if run.copies is None or place is None:
        return ""
    places, folder = RunFolder(run.name, base), place.root.parent
    where, own = f"runs.{run.name}.copies.folder", number_of(places.root)
    if wrong := _wrong_folder(run.copies.folder, folder, places, is_known=bool(own)):
        return f"{where}: {wrong}"
    if not os.path.lexists(place.root):
        return ""
    try:
        place.confirm_own()
        note = place.note()
    except ForeignFolderError as error:
        return f"{where}: {error}"
    except ConfigError as error:
        return f"{where}: {error}; type: {_elsewhere(place)}"
    if note is None:
        is_empty = not os.listdir(place.root)
        return (
            ""
            if is_empty
            else f"{where}: {place.root}: no folder of copies (no {NOTE} in it); type: {_elsewhere(place)}"
        )
    if note.number == own or (not own and is_lost(note, run, base)):
        return ""
    found = f"{where}: {place.root} holds the copies of another run of this name, {note.root}"
    advice = "" if own else f"unbroken restore {run.name} --from {folder} (it goes on here), or "
    if advice and os.path.lexists(places.root):
        advice = f"unbroken restart {run.name}, then {advice}"
    return f"{found}; nothing there was touched; type: {advice}{_elsewhere(place)}"


def is_lost(note: Note, run: Run, base: Path) -> bool:
    """True if the run that these are the copies of stood just where the run would, and is gone.

    Gone is what is absent where the same file system answers; a run that was set aside (`unbroken restart`) is not.
    OSError if it does not answer.
    """
    places = RunFolder(run.name, base)
    results = base / RESULTS
    has_results = _exists(results)
    if _exists(places.root) or places.root.is_symlink() or (results.is_symlink() and not has_results):
        return False
    stands = results if has_results else base
    is_same = note.file_system and note.file_system == file_system_of(stands)
    is_there = note.root == str(results.resolve() / run.name)
    return bool(is_same and is_there) and note.number not in _numbers_set_aside(run.name, base)


def file_system_of(folder: Path) -> str:
    """What is mounted there, as in `nfs4 server:/home`, with the machine's name if it is its own; empty if unknown."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _, mount = fs.mount_of(descriptor)
    finally:
        os.close(descriptor)
    for line in _mounts():
        left, _, right = line.partition(" - ")
        if left.split()[0] == mount:
            kind, source = right.split()[:2]
            # A server and what it exports [NFS, Lustre, CephFS, sshfs].
            is_shared = kind in _SHARED or ":" in source or "@" in source
            return f"{kind} {source}" + ("" if is_shared else f" on {platform.node()}")
    return ""


def _mounts() -> list[str]:
    """Number, ... - kind, source: [man proc_pid_mountinfo]."""
    try:
        return Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return []


def said(error: Exception) -> str:
    """What a disk or a file server says, with the path; a UnbrokenError's own words."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _wrong_folder(written: str, folder: Path, places: RunFolder, is_known: bool) -> str:
    if not _exists(folder):
        if is_known:
            raise StorageError(f"{folder}: gone")
        return f"found '{written}', but there is no such folder; type: mkdir -p {folder}"
    if not folder.is_dir():
        return f"found '{written}', which is no folder, allowed: a folder on another disk or file server"
    if (folder / places.name).resolve().is_relative_to(places.root.resolve()):
        return f"found '{written}', which leads into {places.root}, allowed: a folder on another disk or file server"
    return ""


def _numbers_set_aside(run: str, base: Path) -> set[str]:
    return {number_of(path) for path in (base / RESULTS / ".restarted").glob(f"{run}_*")}


def _exists(path: Path) -> bool:
    """False only if somebody says so who knows: a file server that does not answer raises OSError."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _elsewhere(place: SecondPlace) -> str:
    return f"mv {place.root} {place.root}.old, or name another folder"


def _text(note: Note) -> str:
    return json.dumps(vars(note), indent=2) + "\n"
