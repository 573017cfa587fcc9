"""Hold what all adapters offer, and save what the frameworks omit from their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from unbroken.training.torch import random_state
from unbroken.training.torch import state as torch_state
from unbroken.training.torch.framework_session import FrameworkSession
from unbroken.training.torch.gradients import Gradients
from unbroken.training.torch.state import only
from unbroken.training.torch.switches import modes_of, restore_modes


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

    Gradients of a sharded model are left out: it is saved where a step has used them all.
    """

    def __init__(self, parts: Mapping[str, object], *, has_gradients: bool = True) -> None:
        self._models, self._gradients = only(parts, torch.nn.Module), Gradients(parts if has_gradients else {})

    def state(self) -> dict[str, Any]:
        """Return it in a form that can be saved."""
        modes = {name: modes_of(model) for name, model in self._models.items()}
        state = {"random": random_state.collect({}), "gradients": self._gradients.state(), "modes": modes}
        return {name: torch_state.canonical(value, name) for name, value in state.items()}

    def put_back(self, state: Mapping[str, Any], source: str) -> None:
        """Restore it where the training resumes."""
        random_state.restore_all(state["random"], {})
        self._gradients.restore(state["gradients"], source)
        self._gradients.put_back()
        for name, modes in state["modes"].items():
            restore_modes(self._models[name], modes)
