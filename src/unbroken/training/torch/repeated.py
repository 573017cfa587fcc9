"""What a script does between `epochs` and `batches` is undone where a restart in the middle of the epoch repeats it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

from unbroken.training.torch.state import Stateful, only, tensor_bytes

# What a part that is no model holds is kept until the first batch, if it is not larger.
HELD_BYTES = 64_000_000


class Repeated:
    """The parts as they were when the repetition began; `parts` are those without loaders and data sets."""

    def __init__(self, parts: Mapping[str, Stateful]) -> None:
        self._parts = parts
        self._held = {name: _held_of(part) for name, part in parts.items() if not _has_weights(part)}
        self._weights = _versions(parts)

    def put_back(self) -> bool:
        """Gives each part but the models what it had; returns True if a weight of a model was changed meanwhile."""
        for name, held in self._held.items():
            part = self._parts[name]
            if held is None:
                continue
            if isinstance(part, torch.optim.Optimizer):
                for group, options in zip(part.param_groups, held, strict=False):
                    group.update(options)
            else:
                part.load_state_dict(held)
        return _versions(self._parts) != self._weights


def _held_of(part: Stateful) -> Any:
    """Of an optimizer its options; None of what is too large."""
    if isinstance(part, torch.optim.Optimizer):
        groups = [{key: value for key, value in group.items() if key != "params"} for group in part.param_groups]
        return copy.deepcopy(groups)
    state = part.state_dict()
    return copy.deepcopy(state) if tensor_bytes(state) <= HELD_BYTES else None


def _has_weights(part: object) -> bool:
    return isinstance(part, torch.nn.Module) and next(part.parameters(), None) is not None


def _versions(parts: Mapping[str, object]) -> dict[str, tuple[int, int]]:
    """Return for each weight and buffer of a model which one it is, and how often it was changed."""
    found: dict[str, tuple[int, int]] = {}
    for name, model in only(parts, torch.nn.Module).items():
        if _has_weights(model):
            named = (*model.named_parameters(), *model.named_buffers())
            found |= {f"{name}.{key}": (id(each), each._version) for key, each in named if not each.is_inference()}
    return found
