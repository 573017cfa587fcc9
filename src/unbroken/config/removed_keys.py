"""Keys of a run that earlier versions had: each is refused by a line that says why it is not needed any more."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from unbroken.config.found import found

# Why a run needs no such key.
REMOVED: Mapping[str, str] = MappingProxyType(
    {"queue_wait_minutes": "the tasks of a run's job array wait in the queue while the one before works"}
)


def removed_key(name: object, value: object) -> str:
    """Return what a message says of a removed key behind the place where it stands; empty if it is none."""
    if name not in REMOVED:
        return ""
    return f"found {found(value)}, but this key was removed: {REMOVED[str(name)]}; remove the line"


def removed_column(name: str) -> str:
    """Return what a message says of the column of a removed key; empty if it is none."""
    return f"this key was removed: {REMOVED[name]}; remove the column" if name in REMOVED else ""
