"""Turn a training script into a run of segments by a handful of lines.

`unbroken.training.torch` serves PyTorch.  What is public here needs none of the rest of unbroken; nothing is imported
before it is asked for, so that no library is loaded unasked.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unbroken.training.files.directory import AtomicDirectory
    from unbroken.training.files.torch_file import atomic_torch_save, check_file, verified_torch_load
    from unbroken.training.staging import staged

__all__ = ["AtomicDirectory", "atomic_torch_save", "check_file", "staged", "verified_torch_load"]

_MODULES = {
    **dict.fromkeys(__all__, "unbroken.training.files.torch_file"),
    "AtomicDirectory": "unbroken.training.files.directory",
    "staged": "unbroken.training.staging",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
