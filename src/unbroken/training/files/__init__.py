"""Files and folders that are whole or not there, for programs without the rest."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unbroken.training.files.directory import AtomicDirectory as AtomicDirectory

__all__ = ["AtomicDirectory"]

# Loaded when asked for: the launcher of the ranks, which needs nothing of the framework, lives here too.
_MODULES = {
    **dict.fromkeys(["AtomicDirectory"], "unbroken.training.files.directory"),
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
