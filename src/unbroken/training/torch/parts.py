"""Keep a script's own variables as a part of the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from unbroken.training.torch.state import mapped

NUMPY = "numpy"


class Variables(dict[str, Any]):
    """Keep a dictionary of your own variables as a part of the state: `Training(state={'variables': variables}, ...)`.

    Put in what the next batch or epoch needs (`variables["hidden"] = hidden`), and take it out after a restart
    (`best = variables.get("best", 0.0)`): tensors, numpy's arrays, numbers, text, and containers of them.  Tensors are
    saved without their history of gradients, and come back on the kind of device where they were.
    """

    def state_dict(self) -> dict[str, Any]:
        """Return the values, and on which kind of device their tensors are."""
        devices: list[str] = []

        def detached(value: Any, _: str) -> Any:
            if isinstance(value, np.generic):
                return value.item()
            if not isinstance(value, torch.Tensor | np.ndarray):
                return mapped(value, detached)
            devices.append(NUMPY if isinstance(value, np.ndarray) else value.device.type)
            return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value.detach()

        return {"values": mapped(dict(self), detached), "devices": devices}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the place of all values that are here."""
        devices = iter(state["devices"])

        def placed(value: Any, _: str) -> Any:
            if not isinstance(value, torch.Tensor):
                return mapped(value, placed)
            device = next(devices)
            return value.numpy() if device == NUMPY else value.to(_here(device))

        self.clear()
        self.update(mapped(state["values"], placed))


def _here(device: str) -> str:
    """Return the kind of device if this machine has it, else the CPU."""
    accelerator = torch.accelerator.current_accelerator() if hasattr(torch, "accelerator") else None
    known = {accelerator.type} if accelerator else {"cuda"} if torch.cuda.is_available() else set()
    return device if device in known else "cpu"
