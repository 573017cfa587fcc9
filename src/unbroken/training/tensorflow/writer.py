"""Write the checkpoints of a TensorFlow training, by all workers together, and its `final/`.

Each worker writes all variables, and those of the first are kept.  So TensorFlow does it as well, because reading a
variable may take all of them.  What each has for itself, Python's and numpy's random generators, goes into files of
their own (`workers/00001.json`).
"""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from unbroken.errors import CheckpointError
from unbroken.program.contract import FINAL
from unbroken.store.progress import Handover, Progress
from unbroken.system import fs
from unbroken.training.core import notes as core_notes
from unbroken.training.core.environment import Contract, Outbox, SavePlace
from unbroken.training.core.results import write_result
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.session import Connection
from unbroken.training.tensorflow import variables as tensorflow_state
from unbroken.training.tensorflow.variables import Groups
from unbroken.training.tensorflow.workers import Workers

OWN_FILE = "workers/{:05d}.json"


@dataclass(frozen=True)
class KerasState:
    """Hold all that is to be saved of a training on this worker."""

    groups: Groups
    notes: Mapping[str, Any]


class KerasWriter(Connection):
    """Connect a TensorFlow training; `last` is what `write_last` wrote, with the seconds that it took.

    The training stops for each save, because reading a variable may take all workers.
    """

    def __init__(self, contract: Contract, place: SavePlace, saves: Saves, state_bytes: int, workers: Workers) -> None:
        if saves.in_background:
            raise ValueError("Saves(in_background=True), allowed: None or False, because a save takes all workers")
        super().__init__(contract, place, saves, state_bytes)
        self._workers = workers
        self.last: tuple[Path, float] | None = None

    def save(self, state: KerasState, progress: Progress, step: int, *, is_best: bool, is_last: bool) -> None:
        """Hand over one checkpoint; a kill inside leaves only a draft."""
        self.pace.begin_save(step)
        began = time.monotonic()
        draft = self._write(state, is_last=is_last)
        seconds = time.monotonic() - began
        self._hand_over(draft, progress, seconds, is_best=is_best)
        self.pace.saved(seconds)
        if is_last:
            self.close_place(is_paused=True)

    def write_last(self, state: KerasState) -> None:
        """Write the state of a training that is over; `finish` hands it over."""
        began = time.monotonic()
        self.last = self._write(state, is_last=True), time.monotonic() - began

    def finish(self, progress: Progress, *, is_best: bool, results: Mapping[str, object]) -> None:
        """Hand over what `write_last` wrote, with the results in its folder `final`."""
        if self.last is None:
            raise RuntimeError("finish() without a state; this is a mistake of unbroken")
        draft, seconds = self.last
        with _own_folder(draft, self._workers) as folder:
            for name, content in results.items():
                write_result(folder / FINAL, name, content, _write_other)
        self._workers.meet()
        self._hand_over(draft, progress, seconds, is_best=is_best, is_finished=True)
        self.pace.saved(seconds)
        self.close_place(is_paused=False)

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

    def _write(self, state: KerasState, *, is_last: bool) -> Path:
        """Write into a new draft; the last of a process is read again: then no other process can rewrite it."""
        draft = self._new_draft()
        write_state(state, draft, self._workers)
        if is_last and self._workers.is_first:
            tensorflow_state.read_back(draft)
        return draft

    def _new_draft(self) -> Path:
        """Return one draft for all workers; the first makes it."""
        if self._workers.size == 1:
            return self.place.new_draft()
        number = int(self.place.new_draft().name.rpartition("-")[2]) if self._workers.is_first else 0
        return Outbox(self.contract.save).draft(self._workers.number_of_first(number))

    def _hand_over(self, draft: Path, progress: Progress, seconds: float, **said: Any) -> None:
        if self._workers.is_first:
            handover = Handover(progress, versions=self._made_with(), save_seconds=round(seconds, 3), **said)
            self.place.hand_over(draft, handover)


def write_state(state: KerasState, folder: Path, workers: Workers) -> None:
    """Write a state into `folder`, all workers together; return when all have written."""
    with _own_folder(folder, workers) as place:
        tensorflow_state.write(state.groups, {**state.notes, "workers": workers.size}, place)
    if not workers.is_first:
        path = folder / OWN_FILE.format(workers.rank)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(state.notes["random"]) + "\n")
        fs.flush(path)  # unbroken flushes on the first worker's node
    workers.meet()


def read_notes(folder: Path, workers: Workers) -> dict[str, Any]:
    """Read the notes with which this worker resumes; raise CheckpointError if another number of workers made them."""
    notes = core_notes.read_notes(folder)
    made_by = notes.get("workers", 1)
    if made_by != workers.size:
        raise CheckpointError(f"{folder}: made by {made_by} workers, and there are {workers.size}; allowed: as many")
    if not workers.is_first:
        path = folder / OWN_FILE.format(workers.rank)
        try:
            notes["random"] = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path}: cannot be read: {error}") from error
    return notes


@contextmanager
def _own_folder(folder: Path, workers: Workers) -> Iterator[Path]:
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
    elif path.suffix == ".keras":
        content.save(path)
    elif path.name.endswith(".weights.h5"):
        content.save_weights(path)
    elif not path.suffix:
        content.export(path, verbose=False)
    else:
        raise CheckpointError(
            f"finish(): a model as {path.name!r}, allowed: name.keras, name.weights.h5, or a name without a suffix"
        )
