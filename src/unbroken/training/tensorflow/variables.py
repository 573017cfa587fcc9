"""Collect the state of a TensorFlow training, write it by TensorFlow's own checkpoints, and restore it.

Every variable is named by its place, not found by walking an object: what `tf.train.Checkpoint(model=...)` walks leaves
out the seeds of Dropout, and restoring it says that all was found.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.random.seed_generator import global_seed_generator

from unbroken.errors import CheckpointError
from unbroken.training.core.notes import write_notes
from unbroken.training.core.validation import Validate, Validation, no_number

PREFIX = "state"
Groups = Mapping[str, list[Any]]


def variables_of(part: object) -> list[Any]:
    """Return all variables of a model, optimizer, metric, random generator or variable; raise TypeError for others."""
    if isinstance(part, (keras.random.SeedGenerator, tf.random.Generator)):
        return [part.state]
    if isinstance(part, (keras.Layer, keras.optimizers.Optimizer, keras.metrics.Metric, tf.Module)):
        return list(part.variables)
    if isinstance(part, (tf.Variable, keras.Variable)):
        return [part]
    raise TypeError(
        f"is a {type(part).__name__}, allowed: a Keras model, layer, optimizer, metric, SeedGenerator or Variable, or "
        "a tf.Module, tf.random.Generator or tf.Variable"
    )


def check_built(model: Any, parts: Mapping[str, Any]) -> None:
    """Make the variables of optimizers: later ones could not be restored; raise ValueError for a model without."""
    if not model.built:
        raise ValueError(
            "Training(model): the model is not built, allowed: one that has its variables; begin it with keras.Input, "
            "or call model.build(shape)"
        )
    for optimizer in (getattr(model, "optimizer", None), *parts.values()):
        if isinstance(optimizer, keras.optimizers.Optimizer) and not optimizer.built:
            with model.distribute_strategy.scope():
                optimizer.build(model.trainable_variables)


def build_metrics(model: Any, element_spec: Any) -> None:
    """Make the metrics that a model was compiled with, which Keras itself does in the middle of the first step."""
    model._symbolic_build(data_batch=element_spec)


def model_groups(model: Any) -> dict[str, list[Any]]:
    """Return the variables of a model and of what it was compiled with."""
    groups = {"model": list(model.variables), "keras_random": [global_seed_generator().state]}
    if getattr(model, "optimizer", None) is not None:
        groups["optimizer"] = list(model.optimizer.variables)
    return groups


def size_bytes(groups: Groups) -> int:
    """Return the size of all variables."""
    return sum(tensor.numpy().nbytes for group in groups.values() for tensor in map(_tensor, group))


def write(groups: Groups, notes: Mapping[str, Any], folder: Path) -> None:
    """Write the variables into TensorFlow's files; the notes, with a table of the variables, into `state.json`."""
    tensors = {name: [_tensor(variable) for variable in group] for name, group in groups.items()}
    tf.train.Checkpoint(**tensors).write(str(folder / PREFIX))
    table = {name: [_described(variable) for variable in group] for name, group in groups.items()}
    write_notes(folder, {**notes, "variables": table})


def read_back(folder: Path) -> None:
    """Raise CheckpointError if a variable cannot be read as it was written; TensorFlow's files have checksums."""
    with _reading(f"{folder}: reads back differently from what was written; check the disk"):
        reader = tf.train.load_checkpoint(str(folder / PREFIX))
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)


def put_back(group: str, variables: Iterable[Any], notes: Mapping[str, Any], folder: Path) -> None:
    """Give each variable its saved value; CheckpointError, before any is changed, if they are not the saved ones."""
    targets = list(variables)
    _check_table(group, [_described(variable) for variable in targets], notes["variables"].get(group, []), folder)
    with _reading(f"{folder}: the variables of {group} cannot be read"):
        reader = tf.train.load_checkpoint(str(folder / PREFIX))
        for index, variable in enumerate(targets):
            _tensor(variable).assign(reader.get_tensor(f"{group}/{index}/.ATTRIBUTES/VARIABLE_VALUE"))


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Raise CheckpointError for what TensorFlow raises while it reads a damaged file."""
    try:
        yield
    except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:
        raise CheckpointError(f"{what}: {error}") from error


def random_state() -> dict[str, Any]:
    """Return the state of Python's and numpy's global generators, in JSON's terms."""
    kind, words, gauss = random.getstate()
    twister: Any = np.random.get_state(legacy=False)
    twister = {**twister, "state": {**twister["state"], "key": twister["state"]["key"].tolist()}}
    return {"python": [kind, list(words), gauss], "numpy": twister}


def restore_random(state: Mapping[str, Any]) -> None:
    """Put back what `random_state` returned."""
    kind, words, gauss = state["python"]
    random.setstate((kind, tuple(words), gauss))
    np.random.set_state(state["numpy"])


def _check_table(group: str, own: list[Any], saved: list[Any], folder: Path) -> None:
    for index, (given, known) in enumerate(zip(own, saved, strict=False)):
        if given[1:] != known[1:]:
            then, now = (f"{path} {dtype}{shape}" for path, shape, dtype in (known, given))
            raise CheckpointError(f"{folder}: variable {index} of {group} is {then}, and the script's is {now}")
    if len(own) != len(saved):
        raise CheckpointError(f"{folder}: has {len(saved)} variables of {group}, and the script has {len(own)}")


def _described(variable: Any) -> list[Any]:
    name = getattr(variable, "path", None) or variable.name
    return [name, [int(length) for length in variable.shape], str(tf.as_dtype(variable.dtype).name)]


def _tensor(variable: Any) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable


class KerasValidation(Validation):
    """Check a Keras model: its output on a fixed batch, and that its weights are finite."""

    def __init__(self, validate: Validate | Callable[[], Any] | None, model: Any) -> None:
        super().__init__(validate)
        self._model = model

    def divergence(self, state: Mapping[str, Any] | None) -> str:
        """Return which weight, or which number of the prediction in `state`, is none; empty if all are."""
        # All are asked before the first answer is read: on a GPU each answer is waited for.
        weights = self._model.trainable_weights
        asked = {weight.path: tf.reduce_all(tf.math.is_finite(weight.value)) for weight in weights}
        bad = next((path for path, is_finite in asked.items() if not is_finite), None)
        if bad is not None:
            return f"the weights {bad} hold NaN or infinity"
        return self.non_finite_prediction(state)

    def _numbers(self, predict: Callable[[], Any]) -> list[float]:
        leaves = keras.tree.flatten(predict())
        found = [np.asarray(keras.ops.convert_to_numpy(leaf), dtype="float64").ravel() for leaf in leaves]
        if not sum(array.size for array in found):
            raise no_number()
        numbers: list[float] = np.concatenate(found).tolist()
        return numbers
