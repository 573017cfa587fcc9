"""Find what a training changes and no state of its parts holds: no restart can restore it, so it is reported."""

from __future__ import annotations

import math
import pickle
import sys
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from unbroken.training.torch.gradients import Gradients
from unbroken.training.torch.put_back import bits, listed
from unbroken.training.torch.state import (
    Stateful,
    local,
    mapped,
    modules_in,
    only,
    parameters_in,
    parameters_of,
    places,
    state_of,
    tensors_in,
)
from unbroken.training.torch.stateful_loader import StatefulLoader

# So many of the first bytes of a tensor are compared with what they were.
COMPARED_BYTES = 1_000_000
# A container on a module likewise, if it has not more items.
COMPARED_ITEMS = 10_000
_CONTAINERS = (list, dict, set, deque, np.ndarray)
_NUMBERS = (bool, int, float, complex, str, bytes)
_OF_ALL_MODULES = vars(torch.nn.Module()).keys()
_CHANGES = "changes in the training and is not saved, so a restart loses it"
_BUFFER = "it is a buffer with persistent=False; if it matters, type: persistent=True"
_TENSOR = (
    "it is a tensor and no buffer; if a batch needs that of the batch before, type: self.register_buffer({!r}, ...)"
)
_CONTAINER = "it is no buffer; if a batch needs that of the batch before, give it to Training in a Variables"
_EMPTY = "its state_dict is empty; type what it must keep into its state_dict"


def make_persistent(parts: Mapping[str, object], own: Collection[str], ranks: int) -> Iterator[str]:
    """Let each metric of torchmetrics that is a part give its state, which it leaves out by itself.

    Yield a line for each that is not in `own`, the names of the parts that each of the ranks has for itself.
    """
    for name, part in only(parts, torch.nn.Module).items():
        metrics = [module for module in part.modules() if is_metric(module)]
        if not metrics or next(part.parameters(), None) is not None:
            continue  # the state of a model would get more names
        for metric in metrics:
            metric.persistent(mode=True)  # type: ignore[operator]
        if ranks > 1 and name not in own:
            yield (
                f"{name} ({type(part).__name__}): each rank has seen other batches, and that of the first rank is "
                f"saved for all; type: Training(per_rank={{{name!r}: ...}})"
            )


def is_metric(module: object) -> bool:
    """Return True for a metric of torchmetrics, which is not imported for it."""
    torchmetrics = sys.modules.get("torchmetrics")
    return torchmetrics is not None and isinstance(module, torchmetrics.Metric)


class Unsaved:
    """Find unsaved changes of all parts since this was made; `is_prepared`: the script adds later ones itself."""

    def __init__(self, parts: Mapping[str, Stateful], gradients: Gradients, *, is_prepared: bool) -> None:
        self._parts, self._gradients, self._is_prepared = parts, gradients, is_prepared
        self._empty = [name for name, part in parts.items() if _has_empty_state(part)]
        self._looks = {name: look for name, look, _ in self._now()}
        self._names = {name: _names_in(part) for name, part in parts.items()}

    def lines(self) -> Iterator[str]:
        """Return a line for each thing that has changed."""
        for name, look, remedy in self._now():
            if self._looks.get(name) != look:
                yield f"{name} {_CHANGES}; {remedy}"
        for name, part in self._parts.items() if not self._is_prepared else ():
            if new := [key for key in _names_in(part) if key not in self._names[name]]:
                yield (
                    f"{name} has {listed(new)} now, which it had not when Training(...) was made: a restart can load "
                    "it only if it is made so before, by the epoch; type: Training(..., prepare=function)"
                )
        yield from self._metrics_in_models()
        yield from self._optimizers()
        yield from self._schedulers()

    def _now(self) -> Iterator[tuple[str, bytes, str]]:
        """Yield what no state holds: its name, bytes that differ once it has changed, and what to do about it."""
        for name, value, remedy in self._values():
            with suppress(AttributeError, TypeError, RuntimeError, pickle.PicklingError):  # then it is unknown
                yield name, pickle.dumps(_beginning(value)), remedy

    def _values(self) -> Iterator[tuple[str, object, str]]:
        for path, module in modules_in(self._parts):
            for key, value, remedy in _unsaved_on(module):
                yield f"{path}.{key}", value, remedy
        for name in self._empty:
            yield name, vars(self._parts[name]), _EMPTY

    def _metrics_in_models(self) -> Iterator[str]:
        """Yield a line for each metric that has seen batches of the epoch; at its end most metrics are reset."""
        for path, module in modules_in(self._parts):
            if is_metric(module) and module._update_count and not all(module._persistent.values()):  # type: ignore[operator]
                yield f"{path} {_CHANGES} in the middle of an epoch; type: {path}.persistent(True)"

    def _optimizers(self) -> Iterator[str]:
        names = {id(each): name for name, each in parameters_in(self._parts).items()}
        for optimizer in self._gradients.steppers:
            if not optimizer.state or any(_is_saved_with(optimizer, part) for part in self._parts.values()):
                continue
            if stepped := [names[id(each)] for each in parameters_of(optimizer) if id(each) in names]:
                yield (
                    f"an optimizer ({type(optimizer).__name__}) that Training(...) was not given has changed "
                    f"{stepped[0]}; its state is not saved; type: Training(state={{'optimizer': optimizer}}, ...)"
                )

    def _schedulers(self) -> Iterator[str]:
        near = [each for part in self._parts.values() for each in _in_and_around(part)]  # one may be in another one
        for name, part in only(self._parts, torch.optim.Optimizer).items():
            is_scheduled = hasattr(part.step, "_wrapped_by_lr_sched")
            if is_scheduled and not any(getattr(each, "optimizer", None) is part for each in near):
                yield (
                    f"a learning rate scheduler of {name} was not given to Training(...), so it is not saved and "
                    "starts at 0 after a restart; type: Training(state={'scheduler': scheduler}, ...)"
                )


def _in_and_around(part: object) -> Iterator[object]:
    """Yield a part, and what it holds."""
    yield part
    for value in [*vars(part).values()] if hasattr(part, "__dict__") else ():
        yield value
        if isinstance(value, (list, tuple)):
            yield from value


def _is_saved_with(optimizer: torch.optim.Optimizer, part: Stateful) -> bool:
    """Return True for a part that is the optimizer, or a wrapper around it with its state in the wrapper's own."""
    if part is optimizer:
        return True
    if not any(each is optimizer for each in _in_and_around(part)):
        return False
    state = next((each for each in tensors_in([*optimizer.state.values()]) if each.numel() > 1), None)
    if state is None:
        return True
    same = (local(each) for each in tensors_in(part.state_dict()) if each.shape == state.shape)
    return any(each.dtype == state.dtype and torch.equal(each, local(state)) for each in same)


def _names_in(part: Stateful) -> dict[str, None]:
    """Return the names in the state of a model, or the groups of an optimizer."""
    if isinstance(part, torch.optim.Optimizer):
        return dict.fromkeys(f"group {number}" for number in range(len(part.param_groups)))
    is_model = isinstance(part, torch.nn.Module) and not is_metric(part)
    return dict.fromkeys(state_of(part)) if is_model else {}


def _unsaved_on(module: torch.nn.Module) -> Iterator[tuple[str, object, str]]:
    """Yield what is on a module and in no state: its name, its value, and what to do if it changes.

    That is tensors, and of a class outside of torch lists, dictionaries, arrays, and records too.
    """
    for key in sorted(module._non_persistent_buffers_set):
        yield key, module._buffers.get(key), _BUFFER
    known = [*module._parameters, *module._buffers]
    in_state = (*module._parameters.values(), *module._buffers.values())
    saved = {_memory_of(each) for each in in_state if each is not None} - {None}
    is_own = not type(module).__module__.startswith("torch")
    for key, value in vars(module).items():
        if key in _OF_ALL_MODULES or _is_large(value):
            continue
        held = [each for _, each in places(value)]
        if any(isinstance(each, torch.nn.Module) for each in held):
            continue  # all modules are looked at by themselves
        tensors = [each for each in held if isinstance(each, torch.Tensor)]
        loose = [each for each in tensors if not isinstance(each, torch.nn.Parameter) and _memory_of(each) not in saved]
        # `weight` of a weight norm is made of weight_g and weight_v.
        if loose and not is_metric(module) and not any(name.startswith(f"{key}_") for name in known):
            yield key, loose, _TENSOR.format(key)
        elif is_own and not tensors and isinstance(value, _CONTAINERS):
            yield key, value, _CONTAINER
        elif is_own and _is_record(value):
            yield key, vars(value), _CONTAINER


def _memory_of(tensor: torch.Tensor) -> int | None:
    """Return what is equal for two views of one memory; None where that is unknown."""
    with suppress(RuntimeError, ValueError):  # of a sparse tensor, of one that has no shape yet
        return local(tensor).untyped_storage().data_ptr() or None
    return None


def _is_large(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.nbytes > COMPARED_BYTES
    return isinstance(value, (tuple, *_CONTAINERS)) and len(value) > COMPARED_ITEMS


def _is_record(value: object) -> bool:
    """Return True for an object of numbers, texts, and small arrays and tensors, such as a running mean."""
    if isinstance(value, (type, torch.nn.Module, Stateful)):
        return False
    held = [*vars(value).values()] if hasattr(value, "__dict__") else []
    return bool(held) and all(
        value is None or isinstance(value, _NUMBERS) or getattr(value, "nbytes", math.inf) <= COMPARED_BYTES
        for value in held
    )


def _beginning(value: Any, _: str = "") -> Any:
    """Return a value in a form that can be compared later, of each tensor its first bytes."""
    if isinstance(value, torch.Tensor):
        return bits(local(value))[:COMPARED_BYTES].cpu().numpy().tobytes()
    return mapped(value, _beginning)


def _has_empty_state(part: Stateful) -> bool:
    if isinstance(part, (torch.nn.Module, torch.optim.Optimizer, StatefulLoader)) or not hasattr(part, "__dict__"):
        return False
    return not part.state_dict()
