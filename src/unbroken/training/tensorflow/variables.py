"""Collect the variables of a training, write them by `tf.train.Checkpoint`, and restore them.

Every variable is named by its place, not found by walking an object: what `tf.train.Checkpoint(model=...)` walks leaves
out the seeds of Dropout, and restoring it says that all was found.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.random.seed_generator import global_seed_generator

from unbroken.errors import CheckpointError
from unbroken.training.core.validation import Validate, Validation, no_number

PREFIX = "state"
NOTES = "state.json"
# The variables of each part, and of what belongs to it.
Groups = Mapping[str, list[Any]]


def groups_of(parts: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the variables of all parts, of the optimizers that models were compiled with, and of Keras's generator."""
    groups = {"random numbers of Keras": [global_seed_generator().state]}
    for name, part in parts.items():
        groups[name] = _variables_of(name, part)
        if getattr(part, "optimizer", None) is not None:
            groups[f"optimizer of {name}"] = list(part.optimizer.variables)
    return groups


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


def write(groups: Groups, notes: Mapping[str, Any], folder: Path) -> None:
    """Write the variables into TensorFlow's files, and the notes into `state.json`."""
    tf.train.Checkpoint(**_tensors(groups)).write(str(folder / PREFIX))
    (folder / NOTES).write_text(json.dumps(notes, indent=1, default=lambda number: number.item()) + "\n")


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


def random_state() -> dict[str, Any]:
    """Return the state of Python's and numpy's global generators, in JSON's terms."""
    kind, words, gauss = random.getstate()
    twister: Any = np.random.get_state()
    return {"python": [kind, list(words), gauss], "numpy": [twister[0], twister[1].tolist(), *twister[2:]]}


def restore_random(state: Mapping[str, Any]) -> None:
    """Put back what `random_state` returned."""
    kind, words, gauss = state["python"]
    random.setstate((kind, tuple(words), gauss))
    np.random.set_state(tuple(state["numpy"]))


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


class KerasValidation(Validation):
    """Check Keras models: their output on a fixed batch, and that their weights are finite."""

    def __init__(self, validate: Validate | Callable[[], Any] | None, models: Sequence[Any]) -> None:
        super().__init__(validate)
        self._models = models

    def divergence(self, state: Mapping[str, Any] | None) -> str:
        """Return which weight, or which number of the prediction in `state`, is none; empty if all are."""
        # All are asked before the first answer is read: on a GPU each answer is waited for.
        weights = [weight for model in self._models for weight in model.trainable_weights]
        asked = [(weight.path, tf.reduce_all(tf.math.is_finite(weight.value))) for weight in weights]
        bad = next((path for path, is_finite in asked if not is_finite), None)
        return f"the weights {bad} hold NaN or infinity" if bad else self.non_finite_prediction(state)

    def _numbers(self, predict: Callable[[], Any]) -> list[float]:
        leaves = keras.tree.flatten(predict())
        found = [np.asarray(keras.ops.convert_to_numpy(leaf), dtype="float64").ravel() for leaf in leaves]
        if not sum(array.size for array in found):
            raise no_number()
        numbers: list[float] = np.concatenate(found).tolist()
        return numbers
