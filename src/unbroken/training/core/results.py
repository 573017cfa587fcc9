"""Write a file of `final/`: what `finish()` receives under a name; standard library alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from unbroken.errors import CheckpointError

_T = TypeVar("_T")


def write_result(folder: Path, name: str, content: object, write_other: Callable[[Path, Any], _T]) -> _T | None:
    """Write text, bytes, or the file that a Path names; else let the framework write, and return its answer.

    Raise CheckpointError for a name that leads out of the folder.
    """
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise CheckpointError(f"finish(): {name!r} lies outside of final/, allowed: a file name")
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content)
    else:
        return write_other(path, content)
    return None
