"""Manage the folder in which the pieces of a rehearsal work: a copy of the user's, which moves from piece to piece.

No path in the copy leads to a file of the user's but those that they name as only read (`--read-only`).
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import site
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from unbroken.engines.base import Engine
from unbroken.engines.found import engine_of
from unbroken.errors import ConfigError
from unbroken.job.spec import JobSpec, RuleJob, SubmitOptions
from unbroken.program.contract import FINAL
from unbroken.store import driver_start
from unbroken.store.checkpoint import PARTS, Checkpoint
from unbroken.store.layout import LOGS, RESULTS, STORES, RunFolder
from unbroken.store.rehearsal import FOLDER
from unbroken.store.run import IdentityKeys, RunSpec
from unbroken.system import fs
from unbroken.system.file_events import FileEvent, Happened

# So much is copied for the whole run, the whole run again, and the pieces.
MOST_BYTES = 500_000_000
# A file counts as no less: to make it takes as long.
LEAST_FILE_BYTES = 25_000
_OURS = {str(RESULTS), str(LOGS), str(STORES), ".snakemake"}
_CACHES = {"__pycache__", ".mypy_cache"}
# A program may need them, and writes nothing there.
_LINKED = {".git", ".venv"}
_DIGITS = re.compile(r"\d+")
_CHECKPOINT = re.compile(r"results/[^/]+/checkpoints/\d{6,}_[^/]*")
# Here are checkpoints, results and files that are put back (`work/000003/live`), which unbroken makes itself.
_MADE = re.compile(
    r"(?:results/[^/]+/(?:checkpoints|final|parts|(?:work/\d+/)?live|pieces|segments)|logs|\.snakemake)/.*", re.DOTALL
)


def copy_folder(source: Path, target: Path, shared: Collection[str] = ()) -> None:
    """Copy a folder, with links replaced by their targets; raise ConfigError if it is too large.

    `shared` are paths in it, or links, that the program only reads: they become links to the originals.
    """
    linked, sizes = {*shared, *_LINKED}, Counter[str]()

    def not_copied(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if not is_copied(os.path.join(folder, name))]

    def is_copied(path: str) -> bool:
        """Return False for a pipe, a socket, and what the program cannot read, too."""
        if os.path.basename(path) in _CACHES or os.path.relpath(path, source) in linked | _OURS:
            return False
        return os.path.isdir(path) or (os.path.isfile(path) and os.access(path, os.R_OK))

    def copy(path: str, to: str) -> None:
        size = os.path.getsize(path)
        sizes[os.path.relpath(path, source).partition("/")[0]] += max(size, LEAST_FILE_BYTES)
        if sizes.total() > MOST_BYTES:
            allowed = f"{MOST_BYTES / 1e6:,.0f} MB, each file counted as {LEAST_FILE_BYTES / 1e3:g} kB or more"
            raise ConfigError(
                [
                    f"a rehearsal works in copies of {source.resolve()}, which is too large (allowed: {allowed}); name "
                    f"what the program only reads, such as --read-only {sizes.most_common(1)[0][0]}"
                ]
            )
        with fs.storage_errors(Path(to), size):
            shutil.copy2(path, to)

    shutil.copytree(source, target, copy_function=copy, ignore=not_copied)
    for name in linked:
        if (source / name).exists() and (target / name).parent.is_dir():
            (target / name).symlink_to((source / name).resolve())


class SaveWatch:
    """Know the files of a program's saves: named as in a checkpoint, or renamed to or from such a name."""

    def __init__(self) -> None:
        self._names: set[str] = set()  # of files in checkpoints, each number as 0
        self._moves: list[tuple[str, str]] = []  # paths before and after, each number as 0
        self._drafts: set[str] = set()  # paths of files that get or had a name in a checkpoint, each number as 0
        self._moving: dict[int, str] = {}

    def learn(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Add the names of the files that checkpoints hold, without pieces of results."""
        paths = [PurePosixPath(name) for each in checkpoints for name in each.passport.files]
        self._names |= {without_numbers(path.name) for path in paths if path.parts[0] not in (PARTS, FINAL)}
        self._learn_drafts(self._moves)  # those seen before the names were known, too

    def written(self, events: Iterable[FileEvent]) -> str:
        """Return the newest file of a save that grew, or became a checkpoint; empty if none did."""
        found = ""
        for event in events:
            if event.what & Happened.MOVED_FROM:
                self._moving[event.cookie] = event.name
            elif event.what & Happened.MOVED_TO:
                made = self._moved(self._moving.pop(event.cookie, ""), event.name)
                found = found or made
            elif event.what & Happened.WRITTEN and self.is_state(event.name):
                found = event.name
        return found

    def is_state(self, name: str) -> bool:
        """Return True if a file belongs to a save."""
        return not _MADE.fullmatch(name) and (self._is_named(name) or without_numbers(name) in self._drafts)

    def _is_named(self, name: str) -> bool:
        return without_numbers(PurePosixPath(name).name) in self._names

    def _moved(self, before: str, name: str) -> str:
        """Learn from a move; return what became a checkpoint, for its files may have come in one step."""
        if _CHECKPOINT.fullmatch(name):
            return before or name
        if before and not _MADE.fullmatch(name):
            self._moves.append((without_numbers(before), without_numbers(name)))
            self._learn_drafts(self._moves[-1:])
        return ""

    def _learn_drafts(self, moves: Iterable[tuple[str, str]]) -> None:
        for before, name in moves:
            if self._is_named(name):
                self._drafts.add(before)
            elif self.is_state(before):  # the save before, under another name
                self._drafts.add(name)


def without_numbers(name: str) -> str:
    """Return a name with 0 for each number in it, so that the names of two saves are the same."""
    return _DIGITS.sub("0", name)


@dataclass
class Stage:
    """Provide the folder of the pieces; each piece finds it under another path, with a new TMPDIR and HOME.

    So the run's folder and what the program writes next to `results/` stay from piece to piece, as in real life, and
    what it leaves elsewhere is not found again.  `root` is the rehearsal's folder.
    """

    run: RunSpec
    keys: IdentityKeys
    engine: Engine
    base: Path
    root: Path
    shared: Collection[str] = ()
    saves: SaveWatch = field(default_factory=SaveWatch)
    _name: str = ""
    _count: int = 0

    @property
    def places(self) -> RunFolder:
        return RunFolder(self.run.name, self.folder)

    @property
    def folder(self) -> Path:
        """Return where the pieces work now."""
        return self._place / self.base.resolve().name

    @property
    def log(self) -> Path:
        """Return where the segment of this piece writes."""
        return self.root / LOGS / f"piece-{self._count:02d}.txt"

    @property
    def left(self) -> Path:
        """Return where the segment of a piece lists what its program wrote."""
        return self.root / "stage" / "left.json"

    @property
    def _place(self) -> Path:
        return self.root / "stage" / ("here" if self.engine.is_tied_to_its_folder else f"{self._count:02d}")

    def begin(self, name: str) -> None:
        """Continue in a new copy of the user's folder, which has this name among the logs."""
        self.end()
        self._name = name
        self._next()
        copy_folder(self.base, self.folder, self.shared)
        self.places.root.mkdir(parents=True)
        if self.engine.prepared:
            self._prepare(self.places.root / self.engine.prepared)

    def move_on(self) -> None:
        """Move the folder to another path."""
        before, place = self.folder, self._place
        for name in ("tmp", "home"):
            shutil.rmtree(place / name)
        self._next()
        if before != self.folder:
            os.rename(before, self.folder)

    def end(self) -> None:
        """Remove the folder; keep its logs."""
        with suppress(FileNotFoundError):
            shutil.copytree(self.folder / LOGS, self.root / LOGS / self._name, dirs_exist_ok=True)
        shutil.rmtree(self._place, ignore_errors=True)

    def write_spec(self, run: RunSpec) -> None:
        """Write what the next segment is to do."""
        JobSpec(run.name, run, self.keys, RuleJob(""), SubmitOptions(), run.segments, 0, "").write(self.folder)

    def environment(self) -> dict[str, str]:
        """Return ours without what leads to other folders; packages that users installed for themselves are found."""
        new = ("UNBROKEN_", "XDG_CACHE", "XDG_DATA_HOME", "XDG_STATE")
        own = {name: value for name, value in os.environ.items() if not name.startswith(new)}
        temporary = dict.fromkeys(("TMPDIR", "TMP", "TEMP", "TEMPDIR"), str((self._place / "tmp").resolve()))
        home, start = str((self._place / "home").resolve()), f"rehearsal-{self._count}"
        return {"PYTHONUSERBASE": site.getuserbase(), **own, **temporary, "HOME": home, driver_start.START: start}

    def beside(self) -> Iterator[Path]:
        """Yield the files that the program wrote to where it was started, and that no checkpoint holds."""
        for name in fs.tree_files(self.folder):
            path = self.folder / name
            is_programs = name.parts[0] not in _OURS and not _CACHES & set(name.parts) and not path.is_symlink()
            if is_programs and _stamp(path) != _stamp(self.base / name):
                yield name

    def _next(self) -> None:
        self._count += 1
        for name in ("tmp", "home"):
            (self._place / name).mkdir(parents=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)

    def _prepare(self, target: Path) -> None:
        """Make what is made once before the first segment, the same for all copies."""
        kept = self.root / "stage" / "prepared"
        if kept.exists():
            shutil.copytree(kept, target)
        elif engine_of(self.run, self.folder).prepare(self.run):
            shutil.copytree(target, kept)


def identity(path: Path) -> list[int]:
    """Return what a file keeps when it is moved, and no other file has: its inode, and when it was written."""
    found = path.lstat()
    return [found.st_ino, found.st_mtime_ns]


def _stamp(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = path.stat()
        return found.st_size, found.st_mtime_ns
    return None


@contextmanager
def alone(run: str, base: Path) -> Iterator[None]:
    """Hold the rehearsals of a run, which share a folder; raise ConfigError if another process does.

    The lock goes with its process, however that ends.  On a file system without locks nothing is held.
    """
    folder = base / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{run}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError([f"{run}: another process rehearses it now; wait for its end"]) from error
        except OSError:
            pass
        yield
