"""What a PyTorch model says on a fixed batch, and whether its weights are numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from unbroken.errors import CheckpointError
from unbroken.training.core.validation import Validate, difference
from unbroken.training.torch import state as torch_state
from unbroken.training.torch.state import RandomGenerator, local

Weights = Mapping[str, Mapping[str, torch.Tensor]]  # of each part, by name


class NonFiniteState(CheckpointError):
    """A state that must never become a checkpoint, because the training is lost."""


class TorchValidation:
    """Checks the parts of a training by what they do; without `validate` there is nothing to compare."""

    def __init__(
        self,
        validate: Validate | Callable[[], Any] | None,
        parts: Mapping[str, object],
        generators: Mapping[str, RandomGenerator],
    ) -> None:
        self._validate: Validate | None
        if validate is None or isinstance(validate, Validate):
            self._validate = validate
        else:
            self._validate = Validate(validate)
        self._modules = {name: part for name, part in parts.items() if isinstance(part, torch.nn.Module)}
        self._generators = generators

    def state(self) -> dict[str, Any] | None:
        """The prediction of now and its tolerance, to be saved with the checkpoint."""
        if self._validate is None:
            return None
        return {"prediction": self._predict(), "rtol": self._validate.rtol, "atol": self._validate.atol}

    def validation_error(self, saved: Mapping[str, Any] | None) -> str:
        """How the prediction of now differs from the one that was saved; of two tolerances the wider one counts."""
        if self._validate is None or saved is None:
            return ""
        rtol, atol = max(saved["rtol"], self._validate.rtol), max(saved["atol"], self._validate.atol)
        return difference(saved["prediction"].tolist(), self._predict().tolist(), rtol, atol)

    def weights(self) -> Weights:
        """The weights of each part that has some, as they are now and as they change."""
        parts = self._modules.items()
        return {name: {key: value.detach() for key, value in module.named_parameters()} for name, module in parts}

    def non_finite_prediction(self, state: Mapping[str, Any] | None) -> str:
        """Says so if a number of the prediction in `state` is none; empty if all are."""
        if state is not None and not all(map(math.isfinite, state["prediction"].tolist())):
            return "the prediction (validate) holds NaN or infinity"
        return ""

    def _predict(self) -> torch.Tensor:
        if self._validate is None:
            return torch.empty(0)
        with _as_in_use(self._modules), _random_kept(self._generators), torch.no_grad():
            found = list(_numbers(self._validate.predict()))
        if not found:
            raise TypeError(
                "validate: the prediction holds no number, allowed: tensors, numbers, or containers of them"
            )
        return torch.cat(found)


def _numbers(value: Any) -> Iterator[torch.Tensor]:
    """Every number in a prediction, as float64 on the CPU."""
    if isinstance(value, torch.Tensor):
        real = torch.view_as_real(value) if value.is_complex() else value
        yield real.detach().to(device="cpu", dtype=torch.float64).flatten()
    elif isinstance(value, (int, float)):
        yield torch.tensor([value], dtype=torch.float64)
    elif isinstance(value, Mapping):
        for key in value:
            yield from _numbers(value[key])
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _numbers(item)


def non_finite_weight(weights: Weights) -> str:
    """Which of the weights are no numbers, as far as they lie here; empty if all are."""
    for name, spread in weights.items():
        # All are asked before the first answer is read: on a GPU each answer is waited for.
        own = {key: local(value) for key, value in spread.items()}
        asked = {key: torch.isfinite(_sum(value)) for key, value in own.items()}
        doubted = [key for key, is_finite in asked.items() if not is_finite]
        bad = next((key for key in doubted if not torch.isfinite(own[key]).all()), None)
        if bad is not None:
            return f"the weights {name}.{bad} hold NaN or infinity"
    return ""


def _sum(value: torch.Tensor) -> torch.Tensor:
    """Not finite if one of the numbers is not; to add them up takes a ninth of the time that asking each takes."""
    return value.sum(dtype=torch.float32 if value.dtype in (torch.float16, torch.bfloat16) else None)


@contextmanager
def _as_in_use(modules: Mapping[str, torch.nn.Module]) -> Iterator[None]:
    """The modules without dropout and with their statistics at rest; afterwards each part is as it was."""
    were = [(module, module.training) for top in modules.values() for module in top.modules()]
    try:
        for top in modules.values():
            top.eval()
        yield
    finally:
        for module, was_training in were:
            module.training = was_training


@contextmanager
def _random_kept(generators: Mapping[str, RandomGenerator]) -> Iterator[None]:
    kept = torch_state.collect_random(generators)
    try:
        yield
    finally:
        torch_state.restore_random(kept, generators)
