"""Make checkpoints by several workers together: each writes all variables, and those of the first are kept.

So TensorFlow does it as well, because reading a variable may take all of them.  What each has for itself, Python's and
numpy's random generators, goes into files of their own (`workers/00001.json`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbroken.errors import CheckpointError
from unbroken.system import fs
from unbroken.training.tensorflow import variables as tensorflow_state
from unbroken.training.tensorflow.variables import Groups
from unbroken.training.tensorflow.workers import Workers

OWN = "workers"


@dataclass(frozen=True)
class KerasState:
    """Hold all that is to be saved of a training on this worker."""

    groups: Groups
    notes: str
    random: str


def state_of(groups: Groups, notes: Mapping[str, Any], workers: Workers) -> KerasState:
    """Return the state that consists of these variables and notes, with the random generators."""
    whole = {**notes, "workers": workers.size, "variables": tensorflow_state.table(groups)}
    return KerasState(groups, json.dumps(whole, indent=1) + "\n", json.dumps(notes["random"]) + "\n")


def write(state: KerasState, folder: Path, workers: Workers) -> None:
    """Write a state into `folder`, all workers together; return when all have written."""
    with own_folder(folder, workers) as place:
        tensorflow_state.write(state.groups, state.notes, place)
    if not workers.is_first:
        path = _own_file(folder, workers)
        path.parent.mkdir(exist_ok=True)
        path.write_text(state.random)
        fs.flush_file(path)  # unbroken flushes on the first worker's node
    workers.meet()


def read_notes(folder: Path, workers: Workers) -> dict[str, Any]:
    """Read the notes with which this worker resumes; raise CheckpointError if another number of workers made them."""
    notes = tensorflow_state.read_notes(folder)
    made_by = notes.get("workers", 1)
    if made_by != workers.size:
        raise CheckpointError(f"{folder}: made by {made_by} workers, and there are {workers.size}; allowed: as many")
    if not workers.is_first:
        path = _own_file(folder, workers)
        try:
            notes["random"] = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path}: cannot be read: {error}") from error
    return notes


@contextmanager
def own_folder(folder: Path, workers: Workers) -> Iterator[Path]:
    """Yield where this worker writes what all have: the folder itself for the first, else one that is then removed."""
    if workers.is_first:
        yield folder
        return
    beside = folder.with_name(f"{folder.name}.worker-{workers.rank}")
    beside.mkdir(parents=True)
    try:
        yield beside
    finally:
        shutil.rmtree(beside)


def _own_file(folder: Path, workers: Workers) -> Path:
    return folder / OWN / f"{workers.rank:05d}.json"
