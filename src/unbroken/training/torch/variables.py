"""Variables of a script that are part of a training's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

NUMPY = "numpy"


class Variables(dict[str, Any]):
    """A dictionary of your own variables as a part of the state: `Training(..., variables=variables)`.

    Put in what the next batch or epoch needs (`variables["hidden"] = hidden`), and take it out after a restart
    (`best = variables.get("best", 0.0)`): tensors, numpy's arrays, numbers, text, and containers of them.  Tensors are
    saved without their history of gradients, and come back on the kind of device where they were.
    """

    def state_dict(self) -> dict[str, Any]:
        """Return the values, and on which kind of device their tensors are."""
        devices: list[str] = []

        def detached(array: torch.Tensor | np.ndarray[Any, Any]) -> torch.Tensor:
            if isinstance(array, np.ndarray):
                devices.append(NUMPY)
                return torch.from_numpy(array.copy())
            devices.append(array.device.type)
            return array.detach()

        return {"values": _each_tensor(dict(self), detached), "devices": devices}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the place of all values that are here."""
        devices = iter(state["devices"])
        self.clear()
        self.update(_each_tensor(state["values"], lambda tensor: _placed(tensor, next(devices))))


def _placed(tensor: torch.Tensor, device: str) -> object:
    return tensor.numpy() if device == NUMPY else tensor.to(_here(device))


def _here(device: str) -> str:
    """Return the kind of device if this machine has it, else the CPU."""
    accelerator = torch.accelerator.current_accelerator() if hasattr(torch, "accelerator") else None
    known = {accelerator.type} if accelerator else {"cuda"} if torch.cuda.is_available() else set()
    return device if device in known else "cpu"


def _each_tensor(value: Any, change: Callable[[Any], object]) -> Any:
    """Return the same value with each of its tensors and arrays changed; containers are new ones."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return change(value)
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(_each_tensor(item, change) for item in value)
    if isinstance(value, dict):
        fresh = type(value)()
        fresh.update({key: _each_tensor(item, change) for key, item in value.items()})
        return fresh
    return value
