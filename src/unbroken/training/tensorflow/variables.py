"""The state of a TensorFlow training: what it consists of, written by TensorFlow's own checkpoints, and put back.

Every variable is named by its place, not found by walking an object: what `tf.train.Checkpoint(model=...)` walks leaves
out the seeds of Dropout, and restoring it says that all was found.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.random.seed_generator import global_seed_generator

from unbroken.errors import CheckpointError

PREFIX = "state"
NOTES = "state.json"
Groups = Mapping[str, list[Any]]


def variables_of(part: object) -> list[Any]:
    """All variables of a model, an optimizer, a metric, a random generator or a variable; TypeError for others."""
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
    """Makes the variables of optimizers: what is made later could not be restored; ValueError for a model without."""
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
    """Makes the metrics that a model was compiled with, which Keras itself does in the middle of the first step."""
    model._symbolic_build(data_batch=element_spec)


def model_groups(model: Any) -> dict[str, list[Any]]:
    """The variables of a model and of what it was compiled with."""
    groups = {"model": list(model.variables), "keras_random": [global_seed_generator().state]}
    if getattr(model, "optimizer", None) is not None:
        groups["optimizer"] = list(model.optimizer.variables)
    return groups


def drawn_from(model: Any) -> list[Any]:
    """The seeds of a model's layers, which change when it is called."""
    weights = {id(variable) for variable in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def size_bytes(groups: Groups) -> int:
    """The size of all variables."""
    return sum(tensor.numpy().nbytes for group in groups.values() for tensor in map(_tensor, group))


def table(groups: Groups) -> dict[str, list[list[Any]]]:
    """Name, shape and type of every variable, for the notes."""
    return {name: [_described(variable) for variable in group] for name, group in groups.items()}


def snapshot(groups: Groups) -> dict[str, list[Any]]:
    """The values of now, whatever happens to the variables; in the memory of the processor."""
    with tf.device("CPU:0"):
        return {
            name: [tf.identity(_tensor(variable).read_value()) for variable in group] for name, group in groups.items()
        }


def write(groups: Groups, notes: str, folder: Path) -> None:
    """Leaves the variables, or a snapshot of them, in TensorFlow's files and the notes in `state.json`."""
    lists = {name: [_saveable(value) for value in group] for name, group in groups.items()}
    tf.train.Checkpoint(**lists).write(str(folder / PREFIX))
    (folder / NOTES).write_text(notes)


def read_back(folder: Path) -> None:
    """CheckpointError if a variable cannot be read as it was written; TensorFlow's files say by their checksums."""
    try:
        reader = tf.train.load_checkpoint(str(folder / PREFIX))
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:
        raise CheckpointError(
            f"{folder}: reads back differently from what was written; check the disk: {error}"
        ) from error


def read_notes(folder: Path) -> dict[str, Any]:
    """What `write` was given as notes; CheckpointError if the file is not one of these."""
    try:
        notes = json.loads((folder / NOTES).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / NOTES}: cannot be read: {error}") from error
    if not isinstance(notes, dict):
        raise CheckpointError(f"{folder / NOTES}: {type(notes).__name__}, allowed: an object")
    return notes


def put_back(group: str, variables: Iterable[Any], notes: Mapping[str, Any], folder: Path) -> None:
    """Gives each variable its saved value; CheckpointError, before any is changed, if they are not the saved ones."""
    targets = list(variables)
    _check_table(group, [_described(variable) for variable in targets], notes["variables"].get(group, []), folder)
    try:
        reader = tf.train.load_checkpoint(str(folder / PREFIX))
        for index, variable in enumerate(targets):
            _tensor(variable).assign(reader.get_tensor(f"{group}/{index}/.ATTRIBUTES/VARIABLE_VALUE"))
    except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:
        raise CheckpointError(f"{folder}: the variables of {group} cannot be read: {error}") from error


def random_state() -> dict[str, Any]:
    """Python's and numpy's global generators, in JSON's terms."""
    kind, words, gauss = random.getstate()
    twister: Any = np.random.get_state(legacy=False)
    twister = {**twister, "state": {**twister["state"], "key": twister["state"]["key"].tolist()}}
    return {"python": [kind, list(words), gauss], "numpy": twister}


def restore_random(state: Mapping[str, Any]) -> None:
    """Puts back what `random_state` returned."""
    kind, words, gauss = state["python"]
    random.setstate((kind, tuple(words), gauss))
    np.random.set_state(state["numpy"])


def _check_table(group: str, own: list[Any], saved: list[Any], folder: Path) -> None:
    for index, (given, known) in enumerate(zip(own, saved, strict=False)):
        if given[1:] != known[1:]:
            raise CheckpointError(
                f"{folder}: variable {index} of {group} is {_words(known)}, and the script's is {_words(given)}"
            )
    if len(own) != len(saved):
        raise CheckpointError(f"{folder}: has {len(saved)} variables of {group}, and the script has {len(own)}")


def _words(entry: list[Any]) -> str:
    path, shape, dtype = entry
    return f"{path} {dtype}{shape}"


def _described(variable: Any) -> list[Any]:
    name = getattr(variable, "path", None) or variable.name
    return [name, [int(length) for length in variable.shape], str(tf.as_dtype(variable.dtype).name)]


def _saveable(value: Any) -> Any:
    """What `tf.train.Checkpoint` takes: of a tensor a variable, which shares its memory."""
    if not tf.is_tensor(value) or hasattr(value, "assign"):
        return _tensor(value)
    with tf.device("CPU:0"):
        return tf.Variable(value, trainable=False)


def _tensor(variable: Any) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable
