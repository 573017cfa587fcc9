"""For PyTorch: training loops that can be stopped and go on."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unbroken.training.core.guard import Guard as Guard
    from unbroken.training.core.save_policy import Saves as Saves
    from unbroken.training.core.validation import Validate as Validate
    from unbroken.training.torch.own_generators import RandomKept as RandomKept
    from unbroken.training.torch.random_state import seed_everything as seed_everything
    from unbroken.training.torch.samplers import InterruptibleBatchSampler as InterruptibleBatchSampler
    from unbroken.training.torch.samplers import InterruptibleDistributedSampler as InterruptibleDistributedSampler
    from unbroken.training.torch.samplers import InterruptibleSampler as InterruptibleSampler
    from unbroken.training.torch.serialization import save_verified as save_verified
    from unbroken.training.torch.sharded_dataset import DistributedShardedDataset as DistributedShardedDataset
    from unbroken.training.torch.tracker import BestCopy as BestCopy
    from unbroken.training.torch.tracker import Tracker as Tracker
    from unbroken.training.torch.training import Training as Training
    from unbroken.training.torch.variables import Variables as Variables

__all__ = [
    "BestCopy",
    "DistributedShardedDataset",
    "Guard",
    "InterruptibleBatchSampler",
    "InterruptibleDistributedSampler",
    "InterruptibleSampler",
    "RandomKept",
    "Saves",
    "Tracker",
    "Training",
    "Validate",
    "Variables",
    "save_verified",
    "seed_everything",
]

# Loaded when asked for: the launcher of the ranks, which needs nothing of the framework, lives here too.
_MODULES = {
    **dict.fromkeys(["Guard"], "unbroken.training.core.guard"),
    **dict.fromkeys(["Saves"], "unbroken.training.core.save_policy"),
    **dict.fromkeys(["Validate"], "unbroken.training.core.validation"),
    **dict.fromkeys(["RandomKept"], "unbroken.training.torch.own_generators"),
    **dict.fromkeys(["seed_everything"], "unbroken.training.torch.random_state"),
    **dict.fromkeys(
        ["InterruptibleBatchSampler", "InterruptibleDistributedSampler", "InterruptibleSampler"],
        "unbroken.training.torch.samplers",
    ),
    **dict.fromkeys(["save_verified"], "unbroken.training.torch.serialization"),
    **dict.fromkeys(["DistributedShardedDataset"], "unbroken.training.torch.sharded_dataset"),
    **dict.fromkeys(["BestCopy", "Tracker"], "unbroken.training.torch.tracker"),
    **dict.fromkeys(["Training"], "unbroken.training.torch.training"),
    **dict.fromkeys(["Variables"], "unbroken.training.torch.variables"),
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
