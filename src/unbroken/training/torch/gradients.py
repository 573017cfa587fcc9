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
from torch.utils.weak import WeakTensorKeyDictionary

from unbroken.errors import CheckpointError
from unbroken.training.torch.state import modules_in, parameters_in, parameters_of


class Gradients:
    """Save the gradients of all models and optimizers among the parts, by the names of the parameters."""

    def __init__(self, parts: Mapping[str, object]) -> None:
        self._parts = parts
        # Gradients that a step has used, and their versions after it; parameters that a step has changed.
        self._used: MutableMapping[torch.Tensor, int | None] = WeakTensorKeyDictionary()
        self._stepped: MutableMapping[torch.Tensor, bool] = WeakTensorKeyDictionary()
        self.steppers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()  # of this process
        self._are_replaced = False  # after a step there came new gradients,
        self._are_kept = False  # and never one that a step had used before
        self._saved: Mapping[str, Any] | None = None  # to be put back
        _watching().add(self)

    def state(self) -> dict[str, Any]:
        """Return the gradients that the training still needs, and what was observed of its steps."""
        parameters = parameters_in(self._parts)
        held = {name: each.grad for name, each in parameters.items() if each.grad is not None}
        if self._are_replaced and not self._are_kept:
            held = {name: gradient for name, gradient in held.items() if not self._is_as_used(gradient)}
        used = {name: self._is_as_used(gradient) for name, gradient in held.items() if _own(gradient) in self._used}
        return {
            "tensors": {name: _own_memory(gradient.detach()) for name, gradient in held.items()},
            "used": used,
            "stepped": [name for name, each in parameters.items() if each in self._stepped],
            "are_replaced": self._are_replaced,
            "are_kept": self._are_kept,
        }

    def unshared(self) -> str:
        """Return an error message if an FSDP2 model holds gradients that its ranks have not shared; else ""."""
        modules = (module for _, module in modules_in(self._parts))
        if not any(_holds_unshared(module) for module in modules if hasattr(module, "_get_fsdp_state")):
            return ""
        return (
            "set_requires_gradient_sync(False): FSDP2 holds gradients that its ranks have not shared, which no "
            "checkpoint can hold; allowed: True, with which they are added up as well"
        )

    def restore(self, state: Mapping[str, Any], source: str) -> None:
        """Keep what `state` gave, for `put_back`; raise CheckpointError if a parameter is missing."""
        if unknown := sorted({*state["tensors"], *state["stepped"]} - parameters_in(self._parts).keys()):
            raise CheckpointError(f"{source}: holds the gradient of {unknown[0]}, which is no parameter now")
        self._saved = state

    def put_back(self) -> None:
        """Give each parameter the gradient that it had, or none."""
        state, self._saved = self._saved, None
        if state is None:
            return
        self._are_replaced, self._are_kept = state["are_replaced"], state["are_kept"]
        for name, parameter in parameters_in(self._parts).items():
            gradient = state["tensors"].get(name)
            parameter.grad = None if gradient is None else _own_memory(gradient.to(parameter.device))
            if parameter.grad is not None and name in state["used"]:
                own = _own(parameter.grad)
                self._used[own] = own._version if state["used"][name] else None
            if name in state["stepped"]:
                self._stepped[parameter] = True

    def _is_as_used(self, gradient: torch.Tensor) -> bool:
        """Return True if a step has used the gradient and nothing has changed it since."""
        return self._used.get(_own(gradient)) == _own(gradient)._version

    def note_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Record that the optimizer has made a step."""
        self.steppers.add(optimizer)
        for parameter in parameters_of(optimizer):
            if parameter.grad is not None:
                self._note_used(parameter, _own(parameter.grad))

    def _note_used(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        if gradient in self._used:
            self._are_kept = True
        elif parameter in self._stepped:
            self._are_replaced = True
            self._stepped.clear()  # it has served
        if not self._are_replaced:
            self._stepped[parameter] = True
        self._used[gradient] = gradient._version


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
