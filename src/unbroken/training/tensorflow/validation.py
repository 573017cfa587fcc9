"""What a Keras model says on a fixed batch, and whether its weights are numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from unbroken.training.core.validation import Validate, difference


class KerasValidation:
    """Checks a model by what it does; without `validate` there is nothing to compare."""

    def __init__(self, validate: Validate | Callable[[], Any] | None, model: Any) -> None:
        is_whole = validate is None or isinstance(validate, Validate)
        self._validate: Validate | None = validate if is_whole else Validate(validate)  # type: ignore[assignment, arg-type]
        self._model = model

    def state(self) -> dict[str, Any] | None:
        """The prediction of now and its tolerance, to be saved with the checkpoint."""
        if self._validate is None:
            return None
        prediction = _numbers(self._validate.predict())
        return {"prediction": prediction, "rtol": self._validate.rtol, "atol": self._validate.atol}

    def validation_error(self, saved: Mapping[str, Any] | None) -> str:
        """How the prediction of now differs from the one that was saved; of two tolerances the wider one counts."""
        now = self.state()
        if now is None or saved is None:
            return ""
        rtol, atol = max(saved["rtol"], now["rtol"]), max(saved["atol"], now["atol"])
        return difference(saved["prediction"], now["prediction"], rtol, atol)

    def divergence(self, state: Mapping[str, Any] | None) -> str:
        """Which weight, or which number of the prediction in `state`, is none; empty if all are."""
        # All are asked before the first answer is read: on a GPU each answer is waited for.
        asked = {
            weight.path: tf.reduce_all(tf.math.is_finite(weight.value)) for weight in self._model.trainable_weights
        }
        bad = next((path for path, is_finite in asked.items() if not is_finite), None)
        if bad is not None:
            return f"the weights {bad} hold NaN or infinity"
        if state is not None and not all(map(math.isfinite, state["prediction"])):
            return "the prediction (validate) holds NaN or infinity"
        return ""


def _numbers(prediction: Any) -> list[float]:
    """Every number in a prediction."""
    leaves = keras.tree.flatten(prediction)
    found = [np.asarray(keras.ops.convert_to_numpy(leaf), dtype="float64").ravel() for leaf in leaves]
    if not sum(array.size for array in found):
        raise TypeError("validate: the prediction holds no number, allowed: tensors, numbers, or containers of them")
    numbers: list[float] = np.concatenate(found).tolist()
    return numbers
