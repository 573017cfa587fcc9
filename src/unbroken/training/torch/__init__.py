"""Train with PyTorch so that a loop can be stopped and resumed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unbroken.training.core.guard import Guard as Guard
    from unbroken.training.core.save_policy import Saves as Saves
    from unbroken.training.core.validation import Validate as Validate
    from unbroken.training.torch.checkpoints import Checkpoints as Checkpoints
    from unbroken.training.torch.checkpoints import Stop as Stop
    from unbroken.training.torch.loaders import Loaders as Loaders
    from unbroken.training.torch.parts import Variables as Variables
    from unbroken.training.torch.random_state import seed_everything as seed_everything
    from unbroken.training.torch.serialization import save_verified as save_verified
    from unbroken.training.torch.streams import ResumableStream as ResumableStream
    from unbroken.training.torch.training import Training as Training

# Loaded when asked for: the launcher of the ranks, which needs nothing of the framework, lives here too.
_NAMES = {
    "core.guard": ["Guard"],
    "core.save_policy": ["Saves"],
    "core.validation": ["Validate"],
    "torch.checkpoints": ["Checkpoints", "Stop"],
    "torch.loaders": ["Loaders"],
    "torch.parts": ["Variables"],
    "torch.random_state": ["seed_everything"],
    "torch.serialization": ["save_verified"],
    "torch.streams": ["ResumableStream"],
    "torch.training": ["Training"],
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"unbroken.training.{_MODULES[name]}"), name)
