"""Write the checkpoints of a TensorFlow training, by all workers together, and its `final/`.

Each worker writes all variables, and those of the first are kept.  So TensorFlow does it as well, because reading a
variable may take all of them.  What each has for itself, Python's and numpy's random generators, goes into files of
their own (`workers/00001.json`).
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from unbroken.errors import CheckpointError, SegmentError
from unbroken.program.contract import FINAL
from unbroken.store.progress import Handover, Progress
from unbroken.system import fs
from unbroken.training.core.environment import Contract, Outbox, SavePlace, read_contract
from unbroken.training.core.results import write_result
from unbroken.training.core.run_directory import connect
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.session import Connection
from unbroken.training.tensorflow import variables
from unbroken.training.tensorflow.variables import Groups
from unbroken.training.tensorflow.workers import Workers

OWN_FILE = "workers/{:05d}.json"
# Before the first save nothing is known.
GUESSED_BYTES = 500_000_000


class Draft(NamedTuple):
    """Name a folder that holds a complete state, and the seconds that it took to write."""

    folder: Path
    seconds: float


class KerasWriter(Connection):
    """Connect a TensorFlow training.

    The training stops for each save, because reading a variable may take all workers.
    """

    def __init__(self, contract: Contract, place: SavePlace, saves: Saves, workers: Workers) -> None:
        if saves.in_background:
            raise ValueError("Saves(in_background=True), allowed: None or False, because a save takes all workers")
        super().__init__(contract, place, saves, GUESSED_BYTES)
        self._workers = workers

    def write(self, groups: Groups, notes: Mapping[str, Any], *, is_last: bool) -> Draft:
        """Write a state into a draft; the last of a process is read again: then no other process can rewrite it."""
        began, folder = time.monotonic(), self._new_draft()
        write_state(groups, notes, folder, self._workers)
        if is_last and self._workers.is_first:
            variables.read_back(folder)
        return Draft(folder, time.monotonic() - began)

    def write_results(self, draft: Draft, results: Mapping[str, object]) -> None:
        """Write into the draft what is published in `final/`."""
        with _own_folder(draft.folder, self._workers) as folder:
            for name, content in results.items():
                write_result(folder / FINAL, name, content, _write_other)
        self._workers.meet()

    def hand_over(self, draft: Draft, progress: Progress, *, is_best: bool, is_finished: bool = False) -> None:
        """Publish a draft; a kill before that leaves no visible checkpoint."""
        if self._workers.is_first:
            versions, seconds = self._made_with(), round(draft.seconds, 3)
            handover = Handover(progress, is_best, is_finished, versions=versions, save_seconds=seconds)
            self.place.hand_over(draft.folder, handover)
        self.pace.saved(draft.seconds)

    def _made_with(self) -> dict[str, str]:
        return {
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "workers": str(self._workers.size),
            "threads": str(tf.config.threading.get_intra_op_parallelism_threads() or "all"),
            "gpus": str(len(tf.config.list_physical_devices("GPU"))),
        }

    def _say(self, line: str) -> None:
        self._workers.say(line)

    def _new_draft(self) -> Path:
        """Return one draft for all workers; the first makes it."""
        if self._workers.size == 1:
            return self.place.new_draft()
        number = int(self.place.new_draft().name.rpartition("-")[2]) if self._workers.is_first else 0
        return Outbox(self.contract.save).draft(self._workers.number_of_first(number))


def linked(folder: str | os.PathLike[str] | None, saves: Saves, workers: Workers) -> KerasWriter | None:
    """Return the connection to unbroken's workflow, or to a folder; None without either."""
    if workers.size > 1 and not read_contract() and (folder or os.environ.get("UNBROKEN_FOLDER")):
        raise SegmentError(
            f"{workers.size} workers cannot keep a folder of their own; start them by a workflow "
            "(docs/engines/tensorflow.md), or without a folder"
        )
    if found := connect(folder, saves):
        return KerasWriter(*found, saves, workers)
    workers.say("started by hand without a folder, so nothing is saved")
    return None


def write_state(groups: Groups, notes: Mapping[str, Any], folder: Path, workers: Workers) -> None:
    """Write a state into `folder`, all workers together; return when all have written."""
    with _own_folder(folder, workers) as place:
        variables.write(groups, {**notes, "workers": workers.size}, place)
    if not workers.is_first:
        path = folder / OWN_FILE.format(workers.rank)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(notes["random"]) + "\n")
        fs.flush(path)  # unbroken flushes on the first worker's node
    workers.meet()


def read_notes(folder: Path, workers: Workers) -> dict[str, Any]:
    """Read the notes with which this worker resumes; raise CheckpointError if another number of workers made them."""
    notes = _read_json(folder / variables.NOTES)
    made_by = notes.get("workers", 1)
    if made_by != workers.size:
        raise CheckpointError(f"{folder}: made by {made_by} workers, and there are {workers.size}; allowed: as many")
    if not workers.is_first:
        notes["random"] = _read_json(folder / OWN_FILE.format(workers.rank))
    return notes


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: {type(found).__name__}, allowed: an object")
    return found


@contextmanager
def _own_folder(folder: Path, workers: Workers) -> Iterator[Path]:
    """Yield where this worker writes what all have: the folder itself for the first, else one that is then removed."""
    if workers.is_first:
        yield folder
    else:
        with TemporaryDirectory(prefix=f"{folder.name}.worker-", dir=folder.parent) as other:
            yield Path(other)


def _write_other(path: Path, content: object) -> None:
    """Write what is neither text nor a file; of a model, the name says how: `.keras`, `.weights.h5`, or a folder."""
    if isinstance(content, Mapping):
        arrays: dict[str, Any] = {str(key): np.asarray(array) for key, array in content.items()}
        np.savez(path, **arrays)
    elif not isinstance(content, keras.Model):
        raise CheckpointError(
            f"finish(): {path.name!r} is a {type(content).__name__}, allowed: a Keras model, text, bytes, a Path to "
            "copy, or a dictionary of arrays"
        )
    elif path.name.endswith(".weights.h5"):
        content.save_weights(path)
    elif path.suffix:
        content.save(path)  # which names the suffixes that it allows
    else:
        content.export(path, verbose=False)
