"""A published checkpoint: its folder's name, its passport, and whether its files are still those of then."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import CheckpointError
from unbroken.runs.passport import Passport, reading
from unbroken.runs.progress import FileDigest, amount
from unbroken.system.clock import folder_stamp
from unbroken.system.digests import digest_file

_FOLDER = re.compile(r"(?P<sequence>\d{6,})_.+?(?:_t(?P<token>\d+))?")
# Of a unit so much stands in a folder's name, which has 255 characters at most.
_LONGEST_UNIT = 40
# What a checkpoint's folder of this name holds is a piece of the result, and outlives the checkpoint.
PARTS = "parts"


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint and its passport."""

    folder: Path
    passport: Passport

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def parts(self) -> dict[str, FileDigest]:
        """Its files below `parts/`, which outlive it."""
        return {name: entry for name, entry in self.passport.files.items() if name.startswith(f"{PARTS}/")}

    @property
    def age(self) -> tuple[int, int]:
        """Newer checkpoints compare greater; the token decides between a writer and a zombie before it."""
        return self.passport.sequence, self.passport.token


def names_in(folder: Path) -> list[str]:
    """Names of what looks like a checkpoint, oldest first; nothing is opened."""
    if not folder.is_dir():
        return []
    found = (name for name in os.listdir(folder) if _FOLDER.fullmatch(name))
    return sorted(found, key=lambda name: (int(name.partition("_")[0]), name))


def age_by_name(name: str) -> tuple[int, int]:
    """What `Checkpoint.age` is, of one whose passport cannot be read."""
    match = _FOLDER.fullmatch(name)
    return (int(match["sequence"]), int(match["token"] or 0)) if match else (0, 0)


def folder_name(passport: Passport) -> str:
    """`000042_1200-steps_20261121T022642Z`; a second writer's folder of the same number differs by its token."""
    is_long = 1e6 <= abs(passport.progress.done) < 1e15
    done = f"{passport.progress.done:.0f}" if is_long else f"{passport.progress.done:.6g}"
    unit = re.sub(r"[^A-Za-z0-9]+", "-", passport.progress.unit)[:_LONGEST_UNIT].strip("-") or "steps"
    stamp = folder_stamp(passport.created_utc)
    return f"{passport.sequence:06d}_{done}-{unit}_{stamp}_t{passport.token}"


def verify_files(checkpoint: Checkpoint, seen: Callable[[int], None] = lambda count: None) -> None:
    """Reads every file of a checkpoint again; CheckpointError names the first that is not as it was published.

    `seen` is told the bytes of each file once it was found good, for a progress bar.
    """
    for name, entry in checkpoint.passport.files.items():
        path = checkpoint.folder / name
        with reading(path):
            _verify_file(path, entry, checkpoint.passport.algorithm)
        seen(entry.size_bytes)


def _verify_file(path: Path, entry: FileDigest, algorithm: str) -> None:
    try:
        state = path.lstat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(f"{path}: missing") from error
    if not stat.S_ISREG(state.st_mode):
        raise CheckpointError(f"{path}: not a plain file any more")
    if state.st_size != entry.size_bytes:
        raise CheckpointError(f"{path}: {state.st_size} bytes, published with {entry.size_bytes}")
    if digest_file(path, algorithm) != entry.digest:
        raise CheckpointError(f"{path}: the content changed since it was published (digest)")


def describe_done(checkpoint: Checkpoint) -> str:
    """`1200 of 5000 steps`."""
    progress = checkpoint.passport.progress
    goal = f" of {progress.goal:.10g}" if progress.goal is not None else ""
    return f"{amount(progress.done)}{goal} {progress.unit}"
