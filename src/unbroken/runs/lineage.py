"""The ancestry of a checkpoint: the parts of a result that were made on the way to it, in order and proved whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import Checkpoint, verify_files
from unbroken.runs.passport import read_passport
from unbroken.runs.store import Store


def ancestors(store: Store, checkpoint: Checkpoint) -> list[Checkpoint]:
    """The checkpoint and all before it that it was made from, oldest first; pruned ones are taken from the archive.

    For engines whose checkpoints all have parts.  CheckpointError if one is gone, or not the one that its child names.
    """
    line = [checkpoint]
    while (name := line[0].passport.parent) is not None:
        folder = next((place / name for place in (store.root, store.archive) if (place / name).is_dir()), None)
        if folder is None:
            raise CheckpointError(
                f"{store.archive / name}: gone, and with it the part of the result that {line[0].name} goes on from",
                todo="put it back from a backup",
            )
        line.insert(0, _proved(folder, line[0]))
    return line


def verified_parts(checkpoint: Checkpoint) -> list[Path]:
    """The files below `parts/` of a checkpoint; CheckpointError names one that is not as its passport says."""
    verify_files(only_parts(checkpoint))
    return [checkpoint.folder / name for name in checkpoint.parts]


def only_parts(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint as it is once it was pruned: its passport names the parts alone."""
    return replace(checkpoint, passport=replace(checkpoint.passport, files=checkpoint.parts))


def _proved(folder: Path, child: Checkpoint) -> Checkpoint:
    passport = read_passport(folder)
    if passport.digest != child.passport.parent_digest:
        raise CheckpointError(f"{folder}: not the checkpoint that {child.name} was made from")
    return Checkpoint(folder, passport)
