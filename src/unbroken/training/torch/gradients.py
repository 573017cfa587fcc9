"""Save gradients that are added up over several batches: what no step of an optimizer has used is part of the state.

Most loops replace all gradients after each step (`zero_grad`), so those that a step has used are left out.  If a loop
was not seen to do so, or continues with used ones, all of them are saved: then nothing can be missing.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping, MutableMapping
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from unbroken.errors import CheckpointError
from unbroken.training.torch.state import only, parameters_in, parameters_of


class Gradients:
    """Save the gradients of all models and optimizers among the parts, by the names of the parameters."""

    def __init__(self, parts: Mapping[str, object]) -> None:
        self._parts = parts
        # Of each parameter that a step has changed, the gradient that was used, if it is still there, and its version.
        self._used: MutableMapping[torch.Tensor, tuple[TensorWeakRef, int] | None] = WeakTensorKeyDictionary()
        self.steppers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()  # of this process
        self._are_replaced = False  # after a step there came new gradients,
        self._are_kept = False  # and never one that a step had used before
        _watching().add(self)

    def state(self) -> dict[str, Any]:
        """Return the gradients that the training still needs, and what was observed of its steps."""
        parameters = parameters_in(self._parts)
        used = {name: self._is_as_used(each) for name, each in parameters.items()}
        is_needed = not self._are_replaced or self._are_kept
        held = {name: each.grad for name, each in parameters.items() if is_needed or not used[name]}
        return {
            "tensors": {name: _own_memory(each.detach()) for name, each in held.items() if each is not None},
            "used": {name: is_as_used for name, is_as_used in used.items() if is_as_used is not None and name in held},
            "stepped": [] if self._are_replaced else [name for name, each in parameters.items() if each in self._used],
            "are_replaced": self._are_replaced,
            "are_kept": self._are_kept,
        }

    def unshared(self) -> str:
        """Return an error message if an FSDP2 model holds gradients that its ranks have not shared; else ""."""
        modules = (each for model in only(self._parts, torch.nn.Module).values() for each in model.modules())
        if not any(_holds_unshared(module) for module in modules if hasattr(module, "_get_fsdp_state")):
            return ""
        return (
            "set_requires_gradient_sync(False): FSDP2 holds gradients that its ranks have not shared, which no "
            "checkpoint can hold; allowed: True, with which they are added up as well"
        )

    def check(self, state: Mapping[str, Any], source: str) -> None:
        """Raise CheckpointError if a parameter is missing of which `state` gave a gradient."""
        if unknown := sorted({*state["tensors"], *state["stepped"]} - parameters_in(self._parts).keys()):
            raise CheckpointError(f"{source}: holds the gradient of {unknown[0]}, which is no parameter now")

    def put_back(self, state: Mapping[str, Any]) -> None:
        """Give each parameter the gradient that it had when `state` gave this, or none."""
        self._are_replaced, self._are_kept, stepped = state["are_replaced"], state["are_kept"], {*state["stepped"]}
        for name, parameter in parameters_in(self._parts).items():
            gradient = state["tensors"].get(name)
            parameter.grad = None if gradient is None else _own_memory(gradient.to(parameter.device))
            if parameter.grad is not None and name in state["used"]:
                version = _own(parameter.grad)._version if state["used"][name] else -1
                self._used[parameter] = TensorWeakRef(_own(parameter.grad)), version
            elif name in stepped:
                self._used[parameter] = None

    def _is_as_used(self, parameter: torch.Tensor) -> bool | None:
        """Return True if the gradient is as a step has used it, False if it was changed since; None if none has."""
        reference, version = self._used.get(parameter) or (None, 0)
        if parameter.grad is None or reference is None or reference() is not _own(parameter.grad):
            return None
        return version == _own(parameter.grad)._version

    def note_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Record that the optimizer has made a step."""
        self.steppers.add(optimizer)
        for parameter in parameters_of(optimizer):
            if parameter.grad is not None:
                is_kept = self._is_as_used(parameter) is not None
                self._are_kept |= is_kept
                self._are_replaced |= parameter in self._used and not is_kept
                self._used[parameter] = TensorWeakRef(_own(parameter.grad)), _own(parameter.grad)._version


def shared(states: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean of the ranks' gradients, for a different number of ranks: it is what they would have come to."""
    tensors: dict[str, Any] = {}
    for name in dict.fromkeys(name for state in states for name in state["tensors"]):
        found = [state["tensors"][name] for state in states if name in state["tensors"]]
        is_plain = isinstance(found[0], torch.Tensor)  # else it is spread over the ranks, and the same for all
        tensors[name] = sum(found[1:], found[0]) / len(states) if is_plain else found[0]
    used = {name: is_as_used for name, is_as_used in states[0]["used"].items() if name in tensors}
    return {**states[0], "tensors": tensors, "used": used}


def _own_memory(gradient: torch.Tensor) -> torch.Tensor:
    """Copy a sparse gradient: it has spare memory, which belongs into no file, and lacks it after a load."""
    return gradient if gradient.layout is torch.strided else gradient.clone()


@functools.cache
def _watching() -> weakref.WeakSet[Gradients]:
    """Return the `Gradients` that are notified of each step; the first call makes one hook for all optimizers.

    The hook covers all optimizers of this process, because wrappers call one of torch's that was not given.  The hook
    stays: torch iterates over its hooks while an old `Gradients` may be collected, and must not lose one then.
    """
    watching: weakref.WeakSet[Gradients] = weakref.WeakSet()

    def note(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        for gradients in list(watching):
            gradients.note_step(optimizer)

    register_optimizer_step_post_hook(note)
    return watching


def _own(gradient: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a sharded gradient: FSDP2 adds to it directly, which shows in it alone."""
    return getattr(gradient, "_local_tensor", gradient)


def _holds_unshared(module: Any) -> bool:
    # There is no public way to ask.
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
    parameters = [each for group in groups if group for each in group.fsdp_params]
    return any(
        getattr(each, "unsharded_accumulated_grad", None) is not None
        or getattr(getattr(each, "_unsharded_param", None), "grad", None) is not None
        for each in parameters
    )
