"""Hold what all adapters offer, and save what the frameworks omit from their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from unbroken.training.torch import random_state
from unbroken.training.torch import state as torch_state
from unbroken.training.torch.framework_session import FrameworkSession
from unbroken.training.torch.gradients import Gradients
from unbroken.training.torch.state import only
from unbroken.training.torch.switches import MODES, Switches


class Adapter:
    """Offer what all adapters have in common."""

    _keeper: FrameworkSession

    @property
    def resumed(self) -> bool:
        """Return True if there is a checkpoint to resume from."""
        return self._keeper.resume is not None

    @property
    def resume(self) -> str | None:
        """Return the checkpoint to resume from, as the framework takes it; None if the training begins at zero."""
        return str(self._keeper.resume) if self._keeper.resume else None

    @property
    def goal(self) -> Any:
        """Return the goal of the configuration, an int where it is one; None where it names none, and by hand."""
        goal = self._keeper.contract.goal if self._keeper.contract else None
        return goal if goal is None or goal % 1 else int(goal)

    @property
    def stop_requested(self) -> bool:
        """Return True if this process was asked to stop or its time is up: it saves and leaves after this step."""
        return self._keeper.stop_requested

    def save(self) -> None:
        """Ask for a checkpoint after this step; of several ranks one is enough, and it comes a step later."""
        self._keeper.save()


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
        gradients["tensors"] = {name: _local(each) for name, each in gradients["tensors"].items()}
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


def _local(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient


def _like(parameter: torch.Tensor | None, local: torch.Tensor) -> torch.Tensor:
    """Return the gradient of which this rank has saved its local part."""
    if not isinstance(parameter, DTensor):
        return local
    shape, stride = parameter.shape, parameter.stride()
    return DTensor.from_local(
        local.to(parameter.device), parameter.device_mesh, parameter.placements, shape=shape, stride=stride
    )
