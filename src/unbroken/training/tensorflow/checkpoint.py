"""Find the variables of a TensorFlow training, and write and read them by `tf.train.Checkpoint`.

Every variable is named by its place, not found by walking an object: what `tf.train.Checkpoint(model=...)` walks leaves
out the seeds of Dropout, and restoring it says that all was found.

Each worker writes all variables, and those of the first are kept.  So TensorFlow does it as well, because reading a
variable may take all of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.random.seed_generator import global_seed_generator

from unbroken.errors import CheckpointError, SegmentError
from unbroken.system import fs
from unbroken.training.core.environment import Contract, SavePlace, read_contract
from unbroken.training.core.notes import NotedConnection, NotedPoint, versions_of
from unbroken.training.core.run_directory import connect
from unbroken.training.core.save_policy import Saves
from unbroken.training.tensorflow.workers import Workers

PREFIX = "state"
# Before the first save nothing is known.
GUESSED_BYTES = 500_000_000
# The variables of each part, and of what belongs to it.
Groups = Mapping[str, list[Any]]


class Checkpoints(NotedConnection):
    """Connect a TensorFlow training, which stops for each save: reading a variable may take all workers."""

    def __init__(self, contract: Contract, place: SavePlace, saves: Saves, workers: Workers) -> None:
        if saves.in_background:
            raise ValueError("Saves(in_background=True), allowed: None or False, because a save takes all workers")
        super().__init__(contract, place, saves, GUESSED_BYTES, workers)

    @classmethod
    def of(cls, folder: str | os.PathLike[str] | None, saves: Saves, workers: Workers) -> Checkpoints | None:
        """Return the connection to unbroken's workflow, or to a folder; None without either."""
        if workers.size > 1 and not read_contract() and (folder or os.environ.get("UNBROKEN_FOLDER")):
            raise SegmentError(
                f"{workers.size} workers cannot keep a folder of their own; start them by a workflow "
                "(docs/engines/tensorflow.md), or without a folder"
            )
        found = connect(folder, saves)
        return cls(*found, saves, workers) if found else None

    @contextmanager
    def _own_folder(self, point: NotedPoint) -> Iterator[Path]:
        """Yield the draft on the first worker; on another one a folder that is then removed."""
        if self.ranks.is_first:
            yield point.draft
        else:
            with TemporaryDirectory(prefix="worker-", dir=self.contract.save) as folder:
                yield Path(folder)

    def _write_state(self, folder: Path, point: NotedPoint) -> None:
        write_variables(point.state, folder)
        if point.is_over:  # then no other process can write it again
            read_back(folder)

    def _write_result(self, path: Path, content: object) -> None:
        """Write arrays or a model, of which the name says how: `.keras`, `.weights.h5`, or a folder."""
        if isinstance(content, Mapping):
            arrays: dict[str, Any] = {str(key): np.asarray(array) for key, array in content.items()}
            np.savez(path, **arrays)
        elif not isinstance(content, keras.Model):
            raise CheckpointError(
                f"finish(): {path.name!r} is a {type(content).__name__}, allowed: a Keras model, text, bytes, a Path "
                "to copy, or a dictionary of arrays"
            )
        elif path.name.endswith(".weights.h5"):
            content.save_weights(path)
        elif path.suffix:
            content.save(path)  # which names the suffixes that it allows
        else:
            content.export(path, verbose=False)

    def _made_with(self) -> dict[str, str]:
        return {
            **versions_of("tensorflow", "keras", "numpy"),
            "workers": str(self.ranks.size),
            "threads": str(tf.config.threading.get_intra_op_parallelism_threads() or "all"),
            "gpus": str(len(tf.config.list_physical_devices("GPU"))),
        }


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


# --- the variables of parts ---


def groups_of(parts: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the variables of all parts, of the optimizers that models were compiled with, and of Keras's generator."""
    groups = {"random numbers of Keras": [global_seed_generator().state]}
    for name, part in parts.items():
        groups[name] = _variables_of(name, part)
        if getattr(part, "optimizer", None) is not None:
            groups[f"optimizer of {name}"] = list(part.optimizer.variables)
        for attribute, value in _attributes_of(part).items():
            groups[f"{attribute} of {name}"] = _variables_of(attribute, value)
    return groups


def _attributes_of(part: object) -> dict[str, Any]:
    """Return what a model holds in attributes that are none of Keras's variables, such as a GAN's optimizers."""
    if not isinstance(part, keras.Model):
        return {}
    kinds = (keras.optimizers.Optimizer, tf.random.Generator, tf.Variable)
    return {
        name: value for name, value in vars(part).items() if isinstance(value, kinds) and value is not part.optimizer
    }


def _variables_of(name: str, part: object) -> list[Any]:
    if isinstance(part, (keras.random.SeedGenerator, tf.random.Generator)):
        return [part.state]
    if isinstance(part, (keras.Layer, keras.optimizers.Optimizer, keras.metrics.Metric, tf.Module)):
        return list(part.variables)
    if isinstance(part, (tf.Variable, keras.Variable)):
        return [part]
    raise TypeError(
        f"Training(state=...): {name!r} is a {type(part).__name__}, allowed: a Keras model, layer, optimizer, metric, "
        "SeedGenerator or Variable, or a tf.Module, tf.random.Generator or tf.Variable"
    )


def models_of(parts: Mapping[str, Any]) -> list[Any]:
    """Return the models among the parts."""
    return [part for part in parts.values() if isinstance(part, keras.Model)]


def build_optimizers(parts: Mapping[str, Any]) -> None:
    """Make the variables of optimizers, because those that are made later could not be restored.

    Raise ValueError for a model without variables, or an optimizer that may be that of another model.
    """
    models = models_of(parts)
    for name, part in parts.items():
        if isinstance(part, keras.Model) and not part.built:
            raise ValueError(
                f"Training(state=...): {name!r} is not built, allowed: a model that has its variables; begin it with "
                "keras.Input, or call its build(shape)"
            )
        for attribute, value in _attributes_of(part).items():
            if isinstance(value, keras.optimizers.Optimizer) and not value.built:
                raise ValueError(
                    f"{type(part).__name__}.{attribute} is an optimizer that is not built, and could not be restored; "
                    f"type self.{attribute}.build(weights), with the weights that it trains, where it is set"
                )
        optimizer = getattr(part, "optimizer", part)  # of a model that was compiled
        if not isinstance(optimizer, keras.optimizers.Optimizer) or optimizer.built:
            continue
        if part is optimizer and len(models) != 1:
            raise ValueError(
                f"Training(state=...): {name!r} is not built, and there are {len(models)} models; type "
                f"{name}.build(model.trainable_variables) of the model that it trains"
            )
        model = models[0] if part is optimizer else part
        with model.distribute_strategy.scope():
            optimizer.build(model.trainable_variables)


def predicted(predict: Callable[[], Any]) -> list[float]:
    """Return every number in a prediction."""
    leaves = [keras.ops.convert_to_numpy(leaf) for leaf in keras.tree.flatten(predict())]
    return [number for leaf in leaves for number in np.ravel(leaf).astype(float).tolist()]


def non_finite_weight(models: Sequence[Any]) -> str:
    """Name the first weight that holds NaN or infinity; return "" if all are finite."""
    # All are asked before the first answer is read: on a GPU each answer is waited for.
    weights = [weight for model in models for weight in model.trainable_weights]
    asked = [(weight.path, tf.reduce_all(tf.math.is_finite(weight.value))) for weight in weights]
    bad = next((path for path, is_finite in asked if not is_finite), None)
    return f"the weights {bad} hold NaN or infinity" if bad else ""
