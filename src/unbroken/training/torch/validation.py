"""Compute a PyTorch model's output on a fixed batch, and check that its weights are finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from unbroken.training.core.validation import Validate, Validation, no_number
from unbroken.training.torch.random_state import all_kept
from unbroken.training.torch.state import RandomGenerator, local, only, places

Weights = Mapping[str, Mapping[str, torch.Tensor]]  # of each part, by name


class TorchValidation(Validation):
    """Check the parts of a PyTorch training."""

    def __init__(
        self,
        validate: Validate | Callable[[], Any] | None,
        parts: Mapping[str, object],
        generators: Mapping[str, RandomGenerator],
    ) -> None:
        super().__init__(validate)
        self._modules = only(parts, torch.nn.Module)
        self._generators = generators

    def weights(self) -> Weights:
        """Return the weights of each part that has some, as references that follow later changes."""
        parts = self._modules.items()
        return {name: {key: value.detach() for key, value in module.named_parameters()} for name, module in parts}

    def _numbers(self, predict: Callable[[], Any]) -> torch.Tensor:
        with _as_in_use(self._modules), all_kept(self._generators), torch.no_grad():
            numbers = (each for _, each in places(predict()) if isinstance(each, torch.Tensor | int | float))
            found = list(map(_as_numbers, numbers))
        if not found:
            raise no_number()
        return torch.cat(found)


def _as_numbers(value: Any) -> torch.Tensor:
    """Return a tensor of a prediction as float64 on the CPU."""
    value = torch.as_tensor(value)
    real = torch.view_as_real(value) if value.is_complex() else value
    return real.detach().to(device="cpu", dtype=torch.float64).flatten()


def non_finite_weight(weights: Weights) -> str:
    """Name the first of this rank's weights that hold NaN or infinity; return "" if all are finite."""
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
    """Return the sum, which is not finite if one number is not; this takes a ninth of the time of testing each."""
    return value.sum(dtype=torch.float32 if value.dtype in (torch.float16, torch.bfloat16) else None)


@contextmanager
def _as_in_use(modules: Mapping[str, torch.nn.Module]) -> Iterator[None]:
    """Put the modules into evaluation mode inside the context; afterwards each is as it was."""
    were = [(module, module.training) for top in modules.values() for module in top.modules()]
    try:
        for top in modules.values():
            top.eval()
        yield
    finally:
        for module, was_training in were:
            module.training = was_training
