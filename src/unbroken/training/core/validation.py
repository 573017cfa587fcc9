"""Check that a loaded training does what it did when it was saved; standard library alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Validate:
    """Define a prediction on a fixed batch, made at each save and after each load.

    `predict` takes nothing and gives what the model makes of data that never change.  Two predictions are equal if
    each pair of their numbers differs by `atol + rtol * |number|` at most: as much as other hardware may.
    """

    predict: Callable[[], Any]
    rtol: float = 1e-3
    atol: float = 1e-5

    def __post_init__(self) -> None:
        if not callable(self.predict):
            raise TypeError(
                f"validate is {self.predict!r}, allowed: a function without arguments; type: lambda: model(batch)"
            )


class Validation:
    """Check a training by what it does; without `validate` there is nothing to compare.

    `numbers` calls the function for a prediction, and returns every number in it, as they are saved.
    """

    def __init__(
        self, validate: Validate | Callable[[], Any] | None, numbers: Callable[[Callable[[], Any]], Any]
    ) -> None:
        self._numbers = numbers
        self._validate = validate if validate is None or isinstance(validate, Validate) else Validate(validate)

    def state(self) -> dict[str, Any] | None:
        """Return the prediction of now and its tolerance, to be saved with the checkpoint."""
        if self._validate is None:
            return None
        prediction = self._numbers(self._validate.predict)
        if not len(prediction):
            raise TypeError(
                "validate: the prediction holds no number, allowed: tensors, numbers, or containers of them"
            )
        return {"prediction": prediction, "rtol": self._validate.rtol, "atol": self._validate.atol}

    def validation_error(self, saved: Mapping[str, Any] | None) -> str:
        """Return how the prediction of now differs from the saved one; of two tolerances the wider one counts."""
        if saved is None or (now := self.state()) is None:
            return ""
        rtol, atol = max(saved["rtol"], now["rtol"]), max(saved["atol"], now["atol"])
        return difference(_listed(saved["prediction"]), _listed(now["prediction"]), rtol, atol)

    def non_finite_prediction(self, state: Mapping[str, Any] | None) -> str:
        """Return a line if the prediction in `state` is not finite; empty if it is."""
        if state is not None and not all(map(math.isfinite, _listed(state["prediction"]))):
            return "the prediction (validate) holds NaN or infinity"
        return ""


def difference(then: Sequence[float], now: Sequence[float], rtol: float, atol: float) -> str:
    """Return how much two predictions differ beyond the tolerance, in one line; empty if they do not."""
    if len(then) != len(now):
        return f"the prediction has {len(now)} numbers and had {len(then)} when it was saved"
    pairs = enumerate(zip(then, now, strict=True))
    wrong = [at for at, (old, new) in pairs if not (old == new or abs(new - old) <= atol + rtol * abs(old))]
    if not wrong:
        return ""
    worst = max(wrong, key=lambda at: math.inf if math.isnan(now[at]) else abs(now[at] - then[at]))
    by = abs(now[worst] - then[worst])
    return (
        f"the prediction differs from the one made when it was saved in {len(wrong)} of {len(then)} numbers, by up to "
        f"{by:.3g} (number {worst}: {then[worst]:.6g} then, {now[worst]:.6g} now; "
        f"allowed: {atol:g} + {rtol:g} * |number|)"
    )


def _listed(prediction: Any) -> list[float]:
    """Return the numbers of a list, or of a tensor."""
    return prediction if isinstance(prediction, list) else list(prediction.tolist())
