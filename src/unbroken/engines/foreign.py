"""What ran elsewhere, as it is given to an engine that takes it over, and what the engine says of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import PARTS
from unbroken.runs.progress import Handover
from unbroken.system.copying import copy_head
from unbroken.system.digests import sha256_of

# Of drafts of an adoption, in their hidden names.
DRAFT = "adopted"


@dataclass(frozen=True)
class Foreign:
    """The folder, or file, from which a run is to go on; `done` is how far it is, where the user has said so."""

    path: Path
    done: float | None = None


@dataclass(frozen=True)
class Found:
    """What the engine has put into the draft of the first checkpoint; the rest is for the passport.

    `copies` is a folder in that of the run, named `.adopted-...`, that becomes its `output`.
    """

    handover: Handover
    checked: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    copies: Path | None = None


def refuse_parts(folder: Path) -> None:
    """CheckpointError where a name in a foreign folder would mean something else in a checkpoint."""
    if (folder / PARTS).exists():
        raise CheckpointError(f"{folder / PARTS}: the name {PARTS} belongs to unbroken; rename yours")


def copy_steady(pairs: Iterable[tuple[Path, Path]]) -> None:
    """Copies files of somebody's own; CheckpointError if one of them changed meanwhile, for its program lives."""
    pairs = list(pairs)
    before = [stamp(source) for source, _ in pairs]
    for source, target in pairs:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    confirm_steady([source for source, _ in pairs], before)


def copy_steady_head(source: Path, target: Path, size_bytes: int) -> None:
    """The same for the first bytes of one that may be longer."""
    before = [stamp(source)]
    target.parent.mkdir(parents=True, exist_ok=True)
    copy_head(source, target, size_bytes)
    confirm_steady([source], before)


def confirm_steady(paths: Sequence[Path], before: Sequence[tuple[int, int, int]]) -> None:
    """CheckpointError names the first file that is not as it was."""
    for path, was in zip(paths, before, strict=True):
        if stamp(path) != was:
            raise CheckpointError(f"{path}: changed while it was copied; stop the program that writes it first")


def stamp(path: Path) -> tuple[int, int, int]:
    """What differs if a file was written again."""
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def compared_inputs(names: Iterable[str], base: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Which inputs of a run are those that lie in the program's folder too; and a line for each of the others."""
    same, others = [], []
    for name in names:
        there = folder / Path(name).name
        if there.is_file() and sha256_of(there) == sha256_of(base / name):
            same.append(f"input {name}: the same as in {folder}")
        elif there.is_file():
            others.append(f"input {name}: not the same as in {folder}")
        else:
            others.append(f"input {name}: whether it is what the program was started with")
    return same, others
