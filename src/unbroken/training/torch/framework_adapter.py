"""Save what the frameworks omit from their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from unbroken.training.torch import random_state
from unbroken.training.torch import state as torch_state
from unbroken.training.torch.gradients import Gradients
from unbroken.training.torch.put_back import MODES, Switches
from unbroken.training.torch.state import only


class Omitted:
    """Save what frameworks omit from a checkpoint: random numbers, accumulated gradients, frozen layers and modes.

    Of a sharded model each rank saves its own shards of the gradients.
    """

    def __init__(self, parts: Mapping[str, object]) -> None:
        self._parts, self._gradients = parts, Gradients(parts)
        self._switches = Switches(only(parts, torch.nn.Module), MODES)

    def state(self) -> dict[str, Any]:
        """Return it in a form that can be saved."""
        gradients = self._gradients.state()
        gradients["tensors"] = {name: torch_state.local(each) for name, each in gradients["tensors"].items()}
        state = {"random": random_state.collect({}), "gradients": gradients, "switches": self._switches.state()}
        return {name: torch_state.canonical(value, name) for name, value in state.items()}

    def put_back(self, state: Mapping[str, Any], source: str) -> None:
        """Restore it where the training resumes."""
        random_state.restore_all(state["random"], {})
        gradients, parameters = dict(state["gradients"]), torch_state.parameters_in(self._parts)
        found = gradients["tensors"].items()
        gradients["tensors"] = {name: _like(parameters.get(name), each) for name, each in found}
        self._gradients.restore(gradients, source)
        self._gradients.put_back()
        self._switches.put_back(state["switches"])


def _like(parameter: torch.Tensor | None, local: torch.Tensor) -> torch.Tensor:
    """Return the gradient of which this rank has saved its local part."""
    if not isinstance(parameter, DTensor):
        return local
    shape, stride = parameter.shape, parameter.stride()
    return DTensor.from_local(
        local.to(parameter.device), parameter.device_mesh, parameter.placements, shape=shape, stride=stride
    )
