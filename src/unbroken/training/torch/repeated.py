"""What a script does between `epochs` and `batches` is undone where a restart in the middle of the epoch repeats it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from unbroken.training.torch.state import Stateful, tensor_bytes

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
    """Of each weight and buffer of a model which one it is, and how often it was changed."""
    return {name: (id(tensor), tensor._version) for name, tensor in _weights(parts)}


def _weights(parts: Mapping[str, object]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, part in parts.items():
        if isinstance(part, torch.nn.Module) and _has_weights(part):
            yield from (
                (f"{name}.{key}", tensor) for key, tensor in part.named_parameters() if not tensor.is_inference()
            )
            yield from ((f"{name}.{key}", tensor) for key, tensor in part.named_buffers() if not tensor.is_inference())
