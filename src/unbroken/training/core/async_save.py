"""One save on its way beside the training; standard library alone."""

from __future__ import annotations

import threading
from collections.abc import Callable

from unbroken.errors import CheckpointError


class AsyncSave:
    """Begins at once, in a thread that does not outlive the process: who wants the save done calls `wait`.

    `write` returns the seconds that it took; `stall_seconds` is how long the training has stood still for it.
    """

    def __init__(self, write: Callable[[], float], stall_seconds: float = 0.0) -> None:
        self.seconds, self.stall_seconds = 0.0, stall_seconds
        self._write, self._error = write, None
        self._thread = threading.Thread(target=self._run, name="unbroken-save", daemon=True)
        self._thread.start()

    _error: BaseException | None

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, patience_seconds: float | None = None) -> None:
        """Returns when the save is over; raises what went wrong with it, CheckpointError if it takes longer."""
        self._thread.join(patience_seconds)
        if self._thread.is_alive():
            raise CheckpointError(f"it was not complete {patience_seconds:g} s after the training had ended")
        if self._error:
            raise self._error

    def _run(self) -> None:
        try:
            self.seconds = self._write()
        except BaseException as error:  # noqa: BLE001  (raised again by wait)
            self._error = error
