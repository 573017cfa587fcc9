"""The place of a rehearsal: a new folder for each piece, and what goes from one to the next."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from unbroken.engines.base import Engine
from unbroken.engines.found import engine_of
from unbroken.job.spec import JobSpec, RuleJob, SubmitOptions
from unbroken.rehearsal.folder_copy import FolderCopy
from unbroken.runs.identity import IdentityKeys
from unbroken.runs.layout import RunFolder
from unbroken.runs.run import Run
from unbroken.system.fs import tree_files

BESIDE = "beside"
LAST = "-last"  # how the folder in BESIDE ends of the piece that found what the pieces before it had written there
SEGMENT_LOG = "segment.txt"
OWN_FOLDERS = ("results", "logs", ".snakemake", ".unbroken")


@dataclass
class Stage:
    """The place where all pieces of a rehearsal are played, one after the other; `root` is removed by the caller."""

    run: Run
    keys: IdentityKeys
    engine: Engine
    base: Path
    root: Path
    tell: Callable[[str], None]
    shared: Collection[str] = ()  # what FolderCopy need not copy
    count: int = 0
    links: list[str] = field(default_factory=list)
    _is_last: bool = False
    _before: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def new_folder(self, carried: Path | None, run: Run, is_last: bool = False) -> Path:
        """A new folder that holds what the user's does and, of the run, what the piece before has left of it.

        The last piece also finds what the pieces before wrote to where they were started, as in real life: so a file
        that each start empties is seen.
        """
        self.count += 1
        number = "here" if self.engine.is_tied_to_its_folder else f"{self.count:02d}"
        piece = self.root / number
        if piece.exists():
            shutil.rmtree(piece)
        folder = piece / self.base.resolve().name
        FolderCopy(self.base, self.shared, self.links).make(folder)
        self._is_last = is_last
        if is_last:
            self._put_beside(folder)
        self._before = {name: _stamp(folder / name) for name in tree_files(folder)}
        for name in ("tmp", "home"):
            (piece / name).mkdir()
        places = RunFolder(run.name, folder)
        places.root.parent.mkdir(parents=True, exist_ok=True)
        if carried is not None:
            os.rename(carried, places.root)
        elif self.engine.prepared:
            self._prepare(places.root / self.engine.prepared, run, folder)
        JobSpec(run.name, run, self.keys, RuleJob(""), SubmitOptions(), run.segments, 0, "").write(folder)
        return folder

    def _prepare(self, target: Path, run: Run, folder: Path) -> None:
        """The same for all pieces: that of the run if it has been made, else a new one."""
        kept = self.root / "prepared"
        own = RunFolder(run.name, self.base).root / self.engine.prepared
        if not kept.exists() and own.is_dir():
            shutil.copytree(own, kept)
        target.parent.mkdir(parents=True, exist_ok=True)
        if kept.exists():
            shutil.copytree(kept, target)
            return
        engine_of(run, folder).prepare(run)
        if target.is_dir():
            shutil.copytree(target, kept)

    def carry(self, folder: Path) -> Path:
        """Takes what belongs to the run out of a piece's folder, and removes the rest."""
        carried = self.root / "carried"
        if carried.exists():
            shutil.rmtree(carried)
        os.rename(RunFolder(self.run.name, folder).root, carried)
        logs = self.root / "logs" / f"{self.count:02d}"
        with suppress(FileNotFoundError):
            shutil.copytree(folder / "logs", logs, dirs_exist_ok=True)
            shutil.copyfile(folder.parent / SEGMENT_LOG, logs / SEGMENT_LOG)
        self._keep_beside(folder)
        shutil.rmtree(folder.parent)
        return carried

    def _put_beside(self, folder: Path) -> None:
        """Write what the pieces so far wrote to where they were started: text one behind the other, else the last."""
        parts = sorted((self.root / BESIDE).iterdir()) if (self.root / BESIDE).exists() else []
        for name in {name for part in parts for name in tree_files(part)}:
            texts = [(part / name).read_bytes() for part in parts if (part / name).exists()]
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(texts[-1] if any(b"\0" in text for text in texts) else b"".join(texts))

    def _keep_beside(self, folder: Path) -> None:
        """What the program wrote to where it was started: no checkpoint holds it."""
        for name in tree_files(folder):
            path = folder / name
            is_own = str(name.parts[0]) in OWN_FOLDERS or "__pycache__" in name.parts
            if not is_own and not path.is_symlink() and self._before.get(name) != _stamp(path):
                target = self.root / BESIDE / f"{self.count:02d}{LAST * self._is_last}" / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)


def _stamp(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_size, found.st_mtime_ns
