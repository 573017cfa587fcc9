"""Give a saved state back to its part, and check that it is the saved one: names, types, bits.

No `state_dict` holds what a script may change at an epoch: `requires_grad`, train or eval of each module, the numbers
and texts on a module (the `p` of a dropout, how many updates a metric had), and which parameters a group of an
optimizer has.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from unbroken.errors import CheckpointError
from unbroken.training.torch.state import (
    Stateful,
    local,
    modules_in,
    only,
    parameters_in,
    parameters_of,
    places,
    plainly_named,
    state_of,
)

_MOST_NAMES = 3
# Of a module: `eval()` sets the first; Lightning's BaseFinetuning sets the second where it freezes BatchNorm.
MODES = ("training", "track_running_stats")
# What torch notes there for itself.
_NOT_OURS = frozenset(["_is_full_backward_hook"])


def put_back(parts: Mapping[str, Stateful], states: Mapping[str, Any], source: str) -> None:
    """Give each part its saved state; raise CheckpointError if one does not fit."""
    groups = {name: part.param_groups for name, part in only(parts, torch.optim.Optimizer).items()}
    for name, part in parts.items():
        try:
            with plainly_named(part):
                part.load_state_dict(states[name])
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{source}: the state of {name!r} does not fit: {error}") from error
        if isinstance(part, torch.optim.Optimizer):
            _undo_casts(part, states[name])
        if isinstance(part, (torch.optim.Optimizer, torch.nn.Module)):
            _check_taken(name, part, states[name], source)
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


def _check_taken(name: str, part: Stateful, saved: Any, source: str) -> None:
    """Raise CheckpointError if a tensor has another type than the saved one, or one of an optimizer other bits."""
    here = dict(places(state_of(part), name))
    for place, value in places(saved, name):
        found, where = here.get(place), f"{source}: {place.replace('/', '.')}"
        if not (isinstance(value, torch.Tensor) and isinstance(found, torch.Tensor)):
            continue
        if value.dtype != found.dtype:
            raise CheckpointError(
                f"{where} was saved as {value.dtype}, and here it is {found.dtype}; allowed: the same type"
            )
        # A module may make of what it loads what it likes.
        if isinstance(part, torch.optim.Optimizer) and not are_same(value, found):
            raise CheckpointError(f"{where} has other values after it was loaded: its optimizer cannot go on exactly")


def are_same(one: Any, other: Any) -> bool:
    """Return True if two states are known to have the same values, bit for bit: a NaN is what it was."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and _have_same_bits(local(one), local(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return [*one] == [*other] and all(are_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(are_same, one, other))
    with suppress(AttributeError, TypeError, pickle.PicklingError):  # then it is unknown
        return one is other or (type(one) is type(other) and pickle.dumps(one) == pickle.dumps(other))
    return False


def _have_same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.layout is not torch.strided or one.is_quantized or type(one) not in (torch.Tensor, torch.nn.Parameter):
        return True  # its bits are unknown
    return one.shape == other.shape and torch.equal(bits(one.to(other.device)), bits(other))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits of a tensor, as a flat tensor of bytes."""
    return tensor.detach().resolve_conj().resolve_neg().reshape(-1).contiguous().view(torch.uint8)


class Switches:
    """Save the switches of all models and optimizers among the parts.

    A module's values are saved as far as they have changed since this object was made; with `names` these alone.
    """

    def __init__(self, parts: Mapping[str, object], names: Collection[str] | None = None) -> None:
        self._parts, self._names = parts, names
        self._optimizers = only(parts, torch.optim.Optimizer)
        self._first = {path: self._values_on(module) for path, module in modules_in(parts)}

    def state(self) -> dict[str, Any]:
        """Return all of it, by the names that parameters and modules have without `torch.compile`."""
        parameters = parameters_in(self._parts)
        now = {path: self._values_on(module) for path, module in modules_in(self._parts)}
        changed = {path: _changed(self._first.get(path, {}), values) for path, values in now.items()}
        return {
            "frozen": [name for name, each in parameters.items() if not each.requires_grad],
            "groups": {name: _groups_of(part, parameters) for name, part in self._optimizers.items()},
            "on_modules": {path: values for path, values in changed.items() if values},
        }

    def fit_groups(self, saved: Mapping[str, Any], source: str) -> None:
        """Bring the parameters of each group into the order that they had, by which an optimizer's state is loaded.

        Raise CheckpointError if a group has other parameters than it had.
        """
        parameters = parameters_in(self._parts)
        for name in saved["groups"].keys() & self._optimizers.keys():
            groups, here = self._optimizers[name].param_groups, _groups_of(self._optimizers[name], parameters)
            for number, (group, had, has) in enumerate(zip(groups, saved["groups"][name], here, strict=False)):
                if sorted(had) == sorted(has):
                    group["params"][:] = [parameters[each] for each in had]
                elif len(had) == len(has):  # else torch says so
                    lost, new = [each for each in had if each not in has], [each for each in has if each not in had]
                    raise CheckpointError(
                        f"{source}: group {number} of {name!r} had {listed(lost)}, and has {listed(new)} now; allowed: "
                        "the same parameters"
                    )

    def put_back(self, saved: Mapping[str, Any]) -> str:
        """Restore all of it; return a line that names the parameters whose requires_grad differed, "" if none did."""
        frozen, unlike = set(saved["frozen"]), []
        for name, parameter in parameters_in(self._parts).items():
            if parameter.requires_grad == (name in frozen) and parameter.is_leaf:
                parameter.requires_grad_(name not in frozen)
                unlike.append(name)
        for path, module in modules_in(self._parts):
            wanted = {**self._first.get(path, {}), **saved["on_modules"].get(path, {})}
            here = vars(module)  # in which a tensor may have come to where nothing was
            here.update({key: wanted[key] for key in wanted if key not in here or key in self._values_on(module)})
        if not unlike:
            return ""
        value = "True" if unlike[0] not in frozen else "False"
        return (
            f"requires_grad of {listed(unlike)} is put back as it was in the checkpoint, where it is {value}; to "
            "change it, type: if training.epoch == ...: before batches()"
        )

    def _values_on(self, module: torch.nn.Module) -> dict[str, Any]:
        kinds = (bool, int, float, str, type(None))
        found = {key: value for key, value in vars(module).items() if type(value) in kinds and key not in _NOT_OURS}
        return {key: value for key, value in found.items() if self._names is None or key in self._names}


def _changed(first: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in now.items() if key not in first or not are_same(first[key], value)}


def _groups_of(optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.Tensor]) -> list[list[str]]:
    names = {id(each): name for name, each in parameters.items()}
    return [[names[id(each)] for each in group["params"]] for group in optimizer.param_groups]


def listed(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMES} more" if names[_MOST_NAMES:] else ""
    return ", ".join(names[:_MOST_NAMES]) + more


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
            elif not are_same(held, part.state_dict()):  # one that adds what it loads to what it has is loaded once
                part.load_state_dict(held)
        return _versions(self._parts) != self._weights


def _held_of(part: Stateful) -> Any:
    """Copy an optimizer's options, or the state of any other part."""
    if isinstance(part, torch.optim.Optimizer):
        groups = [{key: value for key, value in group.items() if key != "params"} for group in part.param_groups]
        return copy.deepcopy(groups)
    return copy.deepcopy(part.state_dict())


def _has_weights(part: object) -> bool:
    return isinstance(part, torch.nn.Module) and next(part.parameters(), None) is not None


def _versions(parts: Mapping[str, object]) -> list[tuple[int, int]]:
    """Return for each weight and buffer of the models which one it is, and how often it was changed."""
    models = filter(_has_weights, only(parts, torch.nn.Module).values())
    tensors = [each for model in models for each in (*model.parameters(), *model.buffers())]
    return [(id(each), each._version) for each in tensors if not each.is_inference()]
