"""Find what belongs to the state of a TensorFlow training: the variables of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.random.seed_generator import global_seed_generator


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
