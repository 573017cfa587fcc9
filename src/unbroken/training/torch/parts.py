"""Keep what a script has of its own as a part of the state: variables, sums over an epoch, the best weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from unbroken.training.torch.process_group import here
from unbroken.training.torch.sharded_state import own_part
from unbroken.training.torch.state import mapped

NUMPY = "numpy"


class Tracker:
    """Keep weighted sums of numbers under names, a part of the state: `Training(state={'tracker': tracker}, ...)`.

    `add` is for each batch and does not wait for a GPU; `means`, `sums`, `end_epoch` and `state_dict` bring the ranks
    together where torch.distributed is initialized, so all ranks have to call them.  `epoch_reports` are the means of
    each epoch that has ended.
    """

    def __init__(self) -> None:
        self.epoch_reports: list[dict[str, float]] = []
        self._sums: dict[str, float | torch.Tensor] = {}
        self._weights: dict[str, float] = {}

    def add(self, weight: float = 1.0, **values: float | torch.Tensor) -> None:
        """Add `weight` times each value; the weight of a batch's mean is the number of its samples."""
        for name, value in values.items():
            number = value.detach().to(torch.float64) if isinstance(value, torch.Tensor) else float(value)
            self._sums[name] = self._sums.get(name, 0.0) + weight * number
            self._weights[name] = self._weights.get(name, 0.0) + weight

    def means(self) -> dict[str, float]:
        """Return the weighted mean of each name over all batches of all ranks since the last `reset`."""
        sums, weights = self.sums(), self._over_ranks(self._weights)
        return {name: value / weights[name] if weights[name] else math.nan for name, value in sums.items()}

    def sums(self) -> dict[str, float]:
        """Return the weighted sum of each name over all batches of all ranks since the last `reset`."""
        return self._over_ranks({name: float(value) for name, value in self._sums.items()})

    def reset(self) -> None:
        """Reset the sums, as at the start of an epoch."""
        self._sums.clear()
        self._weights.clear()

    def end_epoch(self) -> dict[str, float]:
        """Append this epoch's means to `epoch_reports` and return them; reset the sums."""
        self.epoch_reports.append(self.means())
        self.reset()
        return self.epoch_reports[-1]

    def state_dict(self) -> dict[str, Any]:
        """Return the sums of every rank, so the state is the same on all ranks."""
        sums = {name: float(value) for name, value in self._sums.items()}
        each = here().all_gather({"sums": sums, "weights": dict(self._weights)})
        return {"ranks": each, "epochs": [dict(report) for report in self.epoch_reports]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave; with another number of ranks, the first one takes all."""
        each, ranks = state_dict["ranks"], here()
        if len(each) == ranks.size:
            mine = each[ranks.rank]
        else:
            mine = {key: _added([one[key] for one in each]) if ranks.is_first else {} for key in ("sums", "weights")}
        self._sums, self._weights = dict(mine["sums"]), dict(mine["weights"])
        self.epoch_reports = [dict(report) for report in state_dict.get("epochs", ())]

    def _over_ranks(self, own: Mapping[str, float]) -> dict[str, float]:
        return _added(here().all_gather(dict(own)))


def _added(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Add up the ranks' values in the order of the ranks, so that the sums are the same each time."""
    names = dict.fromkeys(name for one in each for name in one)
    return {name: math.fsum(one.get(name, 0.0) for one in each) for name in names}


class BestCopy:
    """Keep a copy of a model's weights from the moment of `keep`, a part of the state like the model itself."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = own_part(model)
        self.weights: dict[str, torch.Tensor] = {}
        self.keep()

    def keep(self) -> None:
        """Copy the current weights to the CPU."""
        # Always another memory: on the CPU `.cpu()` alone would give the model's own.
        self.weights = {name: value.detach().cpu().clone() for name, value in self._model.state_dict().items()}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the copy of the weights."""
        return self.weights

    def load_state_dict(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Load the weights of another copy."""
        self.weights = dict(state_dict)


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
