"""For TensorFlow and Keras: training that can be stopped and goes on."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unbroken.training.core.guard import Guard as Guard
    from unbroken.training.core.save_policy import Saves as Saves
    from unbroken.training.core.validation import Validate as Validate
    from unbroken.training.tensorflow.training import Training as Training
    from unbroken.training.tensorflow.training import seed_everything as seed_everything
    from unbroken.training.tensorflow.workers import multi_worker as multi_worker

__all__ = ["Guard", "Saves", "Training", "Validate", "multi_worker", "seed_everything"]

# Loaded when asked for: the launcher of the ranks, which needs nothing of the framework, lives here too.
_MODULES = {
    **dict.fromkeys(["Guard"], "unbroken.training.core.guard"),
    **dict.fromkeys(["Saves"], "unbroken.training.core.save_policy"),
    **dict.fromkeys(["Validate"], "unbroken.training.core.validation"),
    **dict.fromkeys(["Training", "seed_everything"], "unbroken.training.tensorflow.training"),
    **dict.fromkeys(["multi_worker"], "unbroken.training.tensorflow.workers"),
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
