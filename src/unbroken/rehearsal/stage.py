"""Manage the folder in which the pieces of a rehearsal work: a copy of the user's, which moves from piece to piece.

No path in the copy leads to a file of the user's but those that they name as only read (`--read-only`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import site
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from unbroken.engines.base import Engine
from unbroken.engines.found import engine_of
from unbroken.errors import ConfigError
from unbroken.job.spec import JobSpec, RuleJob, SubmitOptions
from unbroken.store import driver_start
from unbroken.store.layout import LOGS, RESULTS, STORES, RunFolder
from unbroken.store.rehearsal import FOLDER
from unbroken.store.run import IdentityKeys, RunSpec
from unbroken.system import fs

# So much is copied for the whole run, the whole run again, and the pieces.
MOST_FILES = 20_000
MOST_BYTES = 512 * 1024 * 1024
_OURS = {str(RESULTS), str(LOGS), str(STORES), ".snakemake"}
_CACHES = {"__pycache__", ".mypy_cache"}
# A program may need them, and writes nothing there.
_LINKED = {".git", ".venv"}


@dataclass
class FolderCopy:
    """Copy a folder; `shared` are paths in it, or links, that the program only reads."""

    source: Path
    shared: Collection[str] = ()
    _files: Counter[str] = field(default_factory=Counter)
    _bytes: Counter[str] = field(default_factory=Counter)

    def make(self, target: Path) -> None:
        """Make the copy, with links replaced by their targets; raise ConfigError if it is too large."""
        shutil.copytree(
            self.source, target, copy_function=self._copy, ignore_dangling_symlinks=True,
            ignore=lambda folder, names: [name for name in names if not self._is_copied(folder, name)],
        )  # fmt: skip
        for name in {*self.shared, *_LINKED}:
            if (self.source / name).exists() and (target / name).parent.is_dir():
                (target / name).symlink_to((self.source / name).resolve())

    def _is_copied(self, folder: str, name: str) -> bool:
        """Return False for a pipe, a socket, and what the program cannot read, too."""
        path = os.path.join(folder, name)
        below = os.path.relpath(path, self.source)
        is_file = os.path.isfile(path) and os.access(path, os.R_OK)
        return (
            name not in _CACHES and below not in {*self.shared, *_LINKED, *_OURS} and (is_file or os.path.isdir(path))
        )

    def _copy(self, source: str, target: str) -> None:
        size, top = os.path.getsize(source), os.path.relpath(source, self.source).partition("/")[0]
        self._files[top] += 1
        self._bytes[top] += size
        if self._files.total() > MOST_FILES or self._bytes.total() > MOST_BYTES:
            largest = max(self._files, key=lambda each: self._files[each] / MOST_FILES + self._bytes[each] / MOST_BYTES)
            raise ConfigError(
                [
                    f"a rehearsal works in copies of {self.source.resolve()}, which is too large (allowed: "
                    f"{MOST_BYTES / 1e6:,.0f} MB, {MOST_FILES:,} files); name what the program only reads, such as "
                    f"--read-only {largest}"
                ]
            )
        with fs.storage_errors(Path(target), size):
            shutil.copy2(source, target)


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
        FolderCopy(self.base, self.shared).make(self.folder)
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
