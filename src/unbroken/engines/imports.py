"""Import files that another program saved: what engines share, and the import of programs that keep the contract."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import CheckpointError, ConfigError
from unbroken.program.contract import HANDOVER_FILE
from unbroken.store.checkpoint import (
    FILE_NAME,
    IMPORT_SEGMENT,
    PARTS,
    Checkpoint,
    Imported,
    read_passport,
    verify_files,
)
from unbroken.store.checkpoints import Store
from unbroken.store.progress import Handover, Progress, parse_handover, read_told
from unbroken.store.run import RunSpec
from unbroken.system import fs

# Next to the draft of the checkpoint: a folder that becomes the run's `output`, if the engine makes it.
OUTPUT = "output"
# The unit where nothing says how far a program is.
COUNTED = "checkpoints"


@dataclass(frozen=True)
class ImportSource:
    """Name the file or folder to import; `done` is how far it is, where the user typed it."""

    path: Path
    done: float | None = None

    def refuse_done(self, run: RunSpec) -> None:
        """Raise ConfigError if `--done` was typed."""
        if self.done is not None:
            raise ConfigError([f"{run.name}: --done: the files themselves say how far they are; leave it out"])


@dataclass(frozen=True)
class ImportedFiles:
    """Say how far the files in the draft of a run's first checkpoint are; the rest is for the manifest (`Imported`)."""

    handover: Handover
    checked: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()
    path: str = ""
    epoch: int = 0
    step: int = 0


@contextmanager
def unchanged(paths: Sequence[Path]) -> Iterator[None]:
    """Raise CheckpointError if a file changes inside the block: the program that writes it still runs."""
    before = [_stamp(path) for path in paths]
    yield
    for path, was in zip(paths, before, strict=True):
        if _stamp(path) != was:
            raise CheckpointError(f"{path}: changed while it was copied; stop the program that writes it first")


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def copy_files(root: Path, names: Sequence[str], draft: Path) -> None:
    """Copy files below `root` into the draft under their names; raise CheckpointError if one changes meanwhile."""
    with unchanged([root / name for name in names]):
        for name in names:
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, draft / name)


# --- programs that keep the contract ---


def import_contract(run: RunSpec, source: ImportSource, draft: Path) -> ImportedFiles:
    """Fill the draft with a file or folder that only the program can read, or with a checkpoint of unbroken.

    How far it is says `progress.json` in the folder, else the user.  Raise CheckpointError if a file is torn.
    """
    if (checkpoint := _own_checkpoint(source.path)) is not None:
        source.refuse_done(run)
        return _import_checkpoint(checkpoint, draft)
    root = source.path if source.path.is_dir() else source.path.parent
    names = [name.as_posix() for name in fs.tree_files(root)] if source.path.is_dir() else [source.path.name]
    for name in names:
        _refuse_file(root, name)
    if ".metadata" not in names and any(name.endswith(".distcp") for name in names):
        raise CheckpointError(f"{root}: torn: has no .metadata, which torch.distributed.checkpoint writes last")
    loads = "whether the program loads all of its state from these files: only it knows"
    if HANDOVER_FILE in names:
        source.refuse_done(run)
        names.remove(HANDOVER_FILE)
        handover = _read_handover(root / HANDOVER_FILE)
        found = ImportedFiles(handover, (f"how far it is: {HANDOVER_FILE} says it",), (loads,))
    elif source.done is not None:
        found = _typed(run, source, source.done, loads)
    else:
        unit = run.settings.get("goal_unit", "steps")
        raise ConfigError([f"{run.name}: {source.path}: does not say how many {unit} are done; type --done N"])
    copy_files(root, names, draft)
    return found


def _typed(run: RunSpec, source: ImportSource, done: float, loads: str) -> ImportedFiles:
    """Return how far the files are, as the user typed it; raise ConfigError if it is no whole number."""
    unit = str(run.settings.get("goal_unit", "steps"))
    if done != int(done) and unit in ("epochs", "steps"):
        raise ConfigError([f"{run.name}: --done: found {done:g}, allowed: a whole number"])
    path = "." if source.path.is_dir() else source.path.name
    lines = (f"how far it is: {done:.10g} was typed", loads)
    epoch, step = (int(done), 0) if unit == "epochs" else (0, int(done))
    return ImportedFiles(Handover(Progress(done, run.goal, unit)), (), lines, path, epoch, step)


def _read_handover(path: Path) -> Handover:
    try:
        return parse_handover(read_told(path), str(path))
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from error


def _refuse_file(root: Path, name: str) -> None:
    """Raise CheckpointError for a file that a checkpoint cannot hold, or that is torn."""
    path = root / name
    if path.is_symlink() or not path.is_file():
        raise CheckpointError(f"{path}: not a plain file; a checkpoint holds no links")
    if name.split("/")[0] in (PARTS, FILE_NAME):
        raise CheckpointError(f"{path}: the name {name.split('/')[0]} belongs to unbroken; rename yours")
    if _is_torn(path):
        raise CheckpointError(f"{path}: torn: the end of the file is missing")


def _is_torn(path: Path) -> bool:
    """Return True for a zip, as torch.save writes it, without its index, or an HDF5 file shorter than its head says."""
    with path.open("rb") as file:
        head = file.read(48)
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        at = 40 if head[8] == 0 else 28  # superblock 0, or 2 and 3
        return head[8] != 1 and path.stat().st_size < int.from_bytes(head[at : at + 8], "little")
    return head.startswith(b"PK\x03\x04") and not zipfile.is_zipfile(path)


def _own_checkpoint(path: Path) -> Checkpoint | None:
    """Return the checkpoint of unbroken that a folder is, or the newest below its `checkpoints/`; None without one."""
    if (path / FILE_NAME).is_file():
        return Checkpoint(path, read_passport(path))
    return next(reversed(Store(path / "checkpoints").readable()), None)


def _import_checkpoint(checkpoint: Checkpoint, draft: Path) -> ImportedFiles:
    """Read every byte of a checkpoint and copy it; its digests stay, and are compared again."""
    verify_files(checkpoint)
    if checkpoint.parts:
        what = "has pieces of results, which only its own run can join; type there: unbroken export"
        raise CheckpointError(f"{checkpoint.folder}: {what}")
    passport = checkpoint.passport
    copy_files(checkpoint.folder, list(passport.files), draft)
    versions = {name: text for name, text in passport.versions.items() if name != "unbroken"}
    handover = Handover(
        passport.progress,
        is_finished=passport.is_finished,
        versions=versions,
        algorithm=passport.algorithm,
        digests=passport.files,
    )
    lines = (f"checkpoint {checkpoint.name} of unbroken: every byte, by its manifest",)
    before = passport.imported if passport.imported and passport.segment == IMPORT_SEGMENT else Imported("")
    return ImportedFiles(handover, lines, (), before.path, before.epoch, before.step)
