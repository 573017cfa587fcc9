"""A save of PyTorch beside the training, from its snapshot to the moment when it may be shown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

import torch

from unbroken.training.core.session import AsyncSave
from unbroken.training.torch.snapshot import Snapshot


class TorchAsyncSave(AsyncSave):
    """Its thread completes the snapshot, then calls `write`, which asks `may_be_shown` at its end.

    All methods but that one are for the training's own thread.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        write: Callable[[TorchAsyncSave], float],
        optimizers: Iterable[torch.optim.Optimizer],
        stall_seconds: float,
    ) -> None:
        self._snapshot = snapshot
        self.is_dropped = False
        self._is_decided = threading.Event()
        waiting = [] if snapshot.is_copied else list(optimizers)
        if snapshot.is_copied:
            self._decide()
        self._hooks = [one.register_step_pre_hook(self._before_step) for one in waiting]

        is_on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        device = torch.cuda.current_device() if is_on_gpu else None

        def complete() -> float:
            if device is not None:  # else a thread works on GPU 0, where each rank would take memory
                torch.cuda.set_device(device)
            snapshot.copy_the_rest()
            return write(self)

        super().__init__(complete, stall_seconds)

    def is_running_before(self, is_step_next: bool) -> bool:
        """False when nobody would have to wait for it.  What comes next may change anything, unless it is a step."""
        if self._snapshot.is_copied or not is_step_next:
            self._decide()
        return self.is_running

    def wait(self, patience_seconds: float | None = None) -> None:
        """Returns when the save is shown, or dropped because its snapshot was torn; raises what went wrong."""
        try:
            self._decide()
            super().wait(patience_seconds)
        finally:
            for hook in self._hooks:
                hook.remove()

    def may_be_shown(self) -> bool:
        """For the writing thread: waits until it is known whether all of the snapshot is of one moment."""
        self._is_decided.wait()
        self.is_dropped = self.is_dropped or self._snapshot.is_other()
        return not self.is_dropped

    def _before_step(self, *_: object) -> None:
        """An optimizer is about to change what may not be copied yet."""
        if not self._is_decided.is_set():
            began = time.monotonic()
            self._decide()
            self.stall_seconds += time.monotonic() - began

    def _decide(self) -> None:
        """Here, where no change is under way; what came between the last look and this one shows in the versions."""
        if not self._is_decided.is_set():
            self._snapshot.wait_for_copy()
            self.is_dropped = self._snapshot.is_torn()
            self._is_decided.set()
