"""Describe what a training saves at one point; standard library alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unbroken.errors import CheckpointError
from unbroken.store.progress import Handover, Progress


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

    @property
    def is_over(self) -> bool:
        """Return True if no other save may follow that would make up for a bad one."""
        return self.is_last or self.is_read_back or self.results is not None

    def handover(self, began: float, stall_seconds: float | None, **more: Any) -> Handover:
        """Return what is handed over with the checkpoint; its writing began at that moment of the monotonic clock."""
        return Handover(
            self.progress,
            is_best=self.is_best,
            is_finished=self.results is not None,
            save_seconds=round(time.monotonic() - began, 3),
            stall_seconds=stall_seconds,
            **more,
        )
