"""Write the checkpoints of a TensorFlow training by `tf.train.Checkpoint`, by all workers together, and restore them.

Every variable is named by its place, not found by walking an object: what `tf.train.Checkpoint(model=...)` walks leaves
out the seeds of Dropout, and restoring it says that all was found.

Each worker writes all variables, and those of the first are kept.  So TensorFlow does it as well, because reading a
variable may take all of them.  The notes hold what each has for itself: Python's and numpy's random generators.
"""

from __future__ import annotations

import math
import os
import platform
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from unbroken.errors import CheckpointError, SegmentError
from unbroken.system import fs
from unbroken.training.core.environment import Contract, SavePlace, read_contract
from unbroken.training.core.notes import read_notes, write_notes
from unbroken.training.core.point import Point
from unbroken.training.core.run_directory import connect
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.session import Connection
from unbroken.training.tensorflow.workers import Workers

PREFIX = "state"
WORDS = 625  # of the state of Python's generator
# Before the first save nothing is known.
GUESSED_BYTES = 500_000_000
# The variables of each part, and of what belongs to it.
Groups = Mapping[str, list[Any]]


class Checkpoints(Connection):
    """Connect a TensorFlow training, which stops for each save: reading a variable may take all workers."""

    def __init__(self, contract: Contract, place: SavePlace, saves: Saves, workers: Workers) -> None:
        if saves.in_background:
            raise ValueError("Saves(in_background=True), allowed: None or False, because a save takes all workers")
        super().__init__(contract, place, saves, GUESSED_BYTES, workers)
        self._workers = workers

    @classmethod
    def of(cls, folder: str | os.PathLike[str] | None, saves: Saves, workers: Workers) -> Checkpoints | None:
        """Return the connection to unbroken's workflow, or to a folder; None without either."""
        if workers.size > 1 and not read_contract() and (folder or os.environ.get("UNBROKEN_FOLDER")):
            raise SegmentError(
                f"{workers.size} workers cannot keep a folder of their own; start them by a workflow "
                "(docs/engines/tensorflow.md), or without a folder"
            )
        if found := connect(folder, saves):
            return cls(*found, saves, workers)
        workers.say("started by hand without a folder, so nothing is saved")
        return None

    def write(self, point: Point, groups: Groups, notes: Mapping[str, Any]) -> None:
        """Write a state into a draft; the last of a process is read again: then no other process can rewrite it."""
        workers = self._workers
        with self._own_folder(point) as folder:
            write_variables(groups, folder)
            write_notes(folder, {**notes, "workers": workers.size, "random": workers.gather(random_state())})
            if point.is_over and workers.is_first:
                read_back(folder)

    def publish(self, point: Point) -> None:
        """Hand over what was written, with the results in `final/`."""
        if point.results is not None:
            with self._own_folder(point) as folder:
                replace(point, draft=folder).write_results(_write_other)
            self._workers.meet()
        if self._workers.is_first:
            self.hand_over(point)

    def read_notes(self, folder: Path, seed: int) -> dict[str, Any]:
        """Return the notes with which this worker resumes; CheckpointError if another number of workers made them."""
        notes = read_notes(folder, seed)
        made_by, size = notes.get("workers"), self._workers.size
        if made_by != size:
            raise CheckpointError(f"{folder}: made by {made_by} workers, and there are {size}; allowed: as many")
        return {**notes, "random": notes["random"][self._workers.rank], "folder": folder}

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

    @contextmanager
    def _own_folder(self, point: Point) -> Iterator[Path]:
        """Yield the draft on the first worker; on another one a folder that is then removed."""
        if self._workers.is_first:
            yield point.draft
        else:
            with TemporaryDirectory(prefix="worker-", dir=self.contract.save) as folder:
                yield Path(folder)


def write_variables(groups: Groups, folder: Path) -> None:
    """Write the variables; raise StorageError if the disk has no room for them."""
    tensors = _tensors(groups)
    size_bytes = sum(math.prod(each.shape) * each.dtype.size for group in tensors.values() for each in group)
    with fs.room_errors(folder, size_bytes):
        tf.train.Checkpoint(**tensors).write(str(folder / PREFIX))


def read_back(folder: Path) -> None:
    """Raise CheckpointError if a variable cannot be read as it was written; TensorFlow's files have checksums."""
    with _reading(f"{folder}: reads back differently from what was written; check the disk"):
        reader = tf.train.load_checkpoint(str(folder / PREFIX))
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)


def put_back(groups: Groups, folder: Path) -> None:
    """Give each variable its saved value; raise CheckpointError if the saved ones are others, more or fewer."""
    with _reading(f"{folder}: cannot be restored; allowed: an intact checkpoint of the same variables"):
        tf.train.Checkpoint(**_tensors(groups)).read(str(folder / PREFIX)).assert_consumed()


def random_state() -> list[float]:
    """Return the state of Python's and numpy's global generators."""
    _, words, gauss = random.getstate()
    twister: Any = np.random.get_state()
    return [*words, gauss is not None, gauss or 0.0, *twister[1].tolist(), *twister[2:]]


def restore_random(state: Sequence[float]) -> None:
    """Put back what `random_state` returned."""
    has_gauss, gauss, *key, at, has_normal, normal = state[WORDS:]
    random.setstate((3, tuple(map(int, state[:WORDS])), gauss if has_gauss else None))
    np.random.set_state(("MT19937", np.array(key, dtype=np.uint32), int(at), int(has_normal), normal))


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Raise CheckpointError for what TensorFlow raises while it reads a damaged file."""
    try:
        yield
    except (tf.errors.OpError, RuntimeError, ValueError, IndexError, AssertionError) as error:
        raise CheckpointError(f"{what}: {' '.join(str(error).split())}") from error


def _tensors(groups: Groups) -> dict[str, list[Any]]:
    return {
        f"part {name}": [each.value if isinstance(each, keras.Variable) else each for each in group]
        for name, group in groups.items()
    }


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
