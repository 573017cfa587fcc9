"""Describe what a training saves at one point, and write its results; standard library alone."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from unbroken.errors import CheckpointError
from unbroken.program.contract import FINAL
from unbroken.store.progress import Handover, Progress

_T = TypeVar("_T")


class NonFiniteState(CheckpointError):
    """Report a state that must never become a checkpoint, because the training is lost."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Hold the description of what is to be saved."""

    progress: Progress
    step: int
    is_best: bool = False
    is_last: bool = False  # the process leaves after it
    is_read_back: bool = False  # the process may leave after it
    where: str = ""  # in the training
    results: Mapping[str, object] | None = None  # of a training that is finished
    # Known once its save begins:
    draft: Path = Path(os.devnull)  # the folder to write it into, which is removed if that fails
    began: float = 0.0  # on the monotonic clock
    stall_seconds: float | None = None  # the training has paused, if it is written in the background

    @property
    def is_over(self) -> bool:
        """Return True if no other save may follow that would make up for a bad one."""
        return self.is_last or self.is_read_back or self.results is not None

    def handover(self, **more: Any) -> Handover:
        """Return what is handed over with the checkpoint, which is written now."""
        return Handover(
            self.progress,
            is_best=self.is_best,
            is_finished=self.results is not None,
            save_seconds=round(time.monotonic() - self.began, 3),
            stall_seconds=self.stall_seconds,
            **more,
        )

    def write_results(self, write_other: Callable[[Path, Any], _T]) -> dict[str, _T | None]:
        """Write the results into `final/` of the draft; return what `write_result` does, by the names there."""
        results, folder = self.results or {}, self.draft / FINAL
        return {
            f"{FINAL}/{name}": write_result(folder, name, content, write_other) for name, content in results.items()
        }


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
