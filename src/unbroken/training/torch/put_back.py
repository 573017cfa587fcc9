"""Give a saved state back to its part, and check that it is the saved one: names, types, bits."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch

from unbroken.errors import CheckpointError
from unbroken.training.torch.state import (
    COMPILED,
    Stateful,
    local,
    only,
    parameters_of,
    state_of,
    unwrapped,
)

_PLAIN = (bool, int, float, str, bytes, type(None))


def put_back(parts: Mapping[str, Stateful], states: Mapping[str, Any], source: str) -> None:
    """Give each part its saved state; raise CheckpointError if one does not fit."""
    groups = {name: part.param_groups for name, part in only(parts, torch.optim.Optimizer).items()}
    for name, part in parts.items():
        try:
            part.load_state_dict(_named_as_in(part, states[name]))
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{source}: the state of {name!r} does not fit: {error}") from error
        if isinstance(part, torch.optim.Optimizer):
            _undo_casts(part, states[name])
        if isinstance(part, (torch.optim.Optimizer, torch.nn.Module)):
            is_exact = isinstance(part, torch.optim.Optimizer)  # a module may make of what it loads what it likes
            if place := _first_difference(states[name], state_of(part), name, is_exact=is_exact):
                raise CheckpointError(f"{source}: {place}")
    _share_again(parts, groups)


def _share_again(parts: Mapping[str, Any], before: Mapping[str, object]) -> None:
    """Let optimizers that had one list of groups have one again: each was given a list of its own (SAM, wrappers)."""
    names: dict[int, str] = {}
    for name, groups in before.items():
        first = names.setdefault(id(groups), name)
        parts[name].param_groups = parts[first].param_groups


def _undo_casts(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Give each tensor of an optimizer's state the type that it had: torch casts them to that of the parameter."""
    if not saved.keys() >= {"param_groups", "state"}:
        return  # one with a state of its own making
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    for number, parameter in zip(numbers, parameters_of(optimizer), strict=False):
        state = optimizer.state.get(parameter, {})
        for key, value in saved["state"].get(number, {}).items():
            here = state.get(key)
            if isinstance(value, torch.Tensor) and isinstance(here, torch.Tensor) and here.dtype != value.dtype:
                state[key] = value.detach().clone().to(here.device)


def _first_difference(saved: Any, here: Any, where: str, *, is_exact: bool) -> str:
    """Describe the first tensor that differs from the saved one in type or bits; return "" if none does."""
    if isinstance(saved, torch.Tensor) and isinstance(here, torch.Tensor):
        if saved.dtype != here.dtype:
            return f"{where} was saved as {saved.dtype}, and here it is {here.dtype}; allowed: the same type"
        is_same = not is_exact or _has_same_bits(local(saved), local(here))
        return "" if is_same else f"{where} has other values after it was loaded: its optimizer cannot go on exactly"
    if isinstance(saved, Mapping) and isinstance(here, Mapping):
        pairs = [(key, saved[key], here[key]) for key in saved if key in here]
    elif isinstance(saved, (list, tuple)) and isinstance(here, (list, tuple)):
        pairs = [(number, *pair) for number, pair in enumerate(zip(saved, here, strict=False))]
    else:
        return ""
    found = (_first_difference(one, other, f"{where}.{key}", is_exact=is_exact) for key, one, other in pairs)
    return next(filter(None, found), "")


def _has_same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if both tensors have the same bits.  A NaN, which is not equal to itself, has the same bits."""
    if one.layout is not torch.strided or one.is_quantized or type(one) not in (torch.Tensor, torch.nn.Parameter):
        return True  # its bits are unknown
    return one.shape == other.shape and torch.equal(bits(one.to(other.device)), bits(other))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits of a tensor, as a flat tensor of bytes."""
    return tensor.detach().resolve_conj().resolve_neg().reshape(-1).contiguous().view(torch.uint8)


def _named_as_in(part: object, state: Any) -> Any:
    """Return a saved state by the names that the model has here, whose blocks may be compiled."""
    here = part.state_dict() if isinstance(part, torch.nn.Module) else {}
    if not any(COMPILED in key for key in here):
        return state
    names = {key.replace(COMPILED, ""): key for key in here}
    fresh: Any = OrderedDict((names.get(key, key), value) for key, value in state.items())
    versions, modules = getattr(state, "_metadata", {}), getattr(here, "_metadata", {})
    fresh._metadata = OrderedDict((name, versions.get(unwrapped(name), modules[name])) for name in modules)
    return fresh


class Repeated:
    """Hold the parts as they were when the repetition began; `parts` are those without loaders and data sets."""

    def __init__(self, parts: Mapping[str, Stateful]) -> None:
        self._parts = parts
        self._held = {name: _held_of(part) for name, part in parts.items() if not _has_weights(part)}
        self._weights = _versions(parts)

    def put_back(self) -> bool:
        """Give each part but the models what it had; return True if a weight of a model was changed meanwhile."""
        for name, held in self._held.items():
            part = self._parts[name]
            if isinstance(part, torch.optim.Optimizer):
                for group, options in zip(part.param_groups, held, strict=False):
                    group.update(options)
            elif not _is_same(held, part.state_dict()):  # one that adds what it loads to what it has is loaded once
                part.load_state_dict(held)
        return _versions(self._parts) != self._weights


def _is_same(one: Any, other: Any) -> bool:
    """Return True if two states are known to have the same values."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and _has_same_bits(local(one), local(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return [*one] == [*other] and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return isinstance(one, _PLAIN) and type(one) is type(other) and one == other


def _held_of(part: Stateful) -> Any:
    """Copy an optimizer's options, or the state of any other part."""
    if isinstance(part, torch.optim.Optimizer):
        groups = [{key: value for key, value in group.items() if key != "params"} for group in part.param_groups]
        return copy.deepcopy(groups)
    return copy.deepcopy(part.state_dict())


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
