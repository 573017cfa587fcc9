"""What a Keras model says on a fixed batch, and whether its weights are numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from unbroken.training.core.validation import Validate, Validation, no_number


class KerasValidation(Validation):
    """That of a Keras model."""

    def __init__(self, validate: Validate | Callable[[], Any] | None, model: Any) -> None:
        super().__init__(validate)
        self._model = model

    def divergence(self, state: Mapping[str, Any] | None) -> str:
        """Which weight, or which number of the prediction in `state`, is none; empty if all are."""
        # All are asked before the first answer is read: on a GPU each answer is waited for.
        asked = {
            weight.path: tf.reduce_all(tf.math.is_finite(weight.value)) for weight in self._model.trainable_weights
        }
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
