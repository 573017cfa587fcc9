"""Compute a PyTorch model's output on a fixed batch, and check that its weights are finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from unbroken.training.torch.random_state import all_kept
from unbroken.training.torch.state import RandomGenerator, local, only, places

Weights = Mapping[str, Mapping[str, torch.Tensor]]  # of each part, by name


def predicted(
    predict: Callable[[], Any], parts: Mapping[str, object], generators: Mapping[str, RandomGenerator]
) -> torch.Tensor:
    """Return every number in a prediction, made in evaluation mode; it leaves modules and generators as they were."""
    modules = [module for model in only(parts, torch.nn.Module).values() for module in model.modules()]
    modes = [module.training for module in modules]
    try:
        for module in modules:
            module.training = False
        with all_kept(generators), torch.no_grad():
            found = [each for _, each in places(predict()) if isinstance(each, torch.Tensor | int | float)]
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
    return torch.cat([torch.empty(0, dtype=torch.float64), *map(_as_numbers, found)])


def weights_of(parts: Mapping[str, object]) -> Weights:
    """Return the weights of each model, as references that follow later changes."""
    models = only(parts, torch.nn.Module).items()
    return {name: {key: value.detach() for key, value in model.named_parameters()} for name, model in models}


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
