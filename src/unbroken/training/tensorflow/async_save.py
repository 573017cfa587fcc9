"""One save on its way beside the training.

TensorFlow never changes a tensor that somebody holds: an update of its variable makes a new one.  So a snapshot costs
nothing but the room for those that change while it is written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class KerasAsyncSave:
    """Takes off at once in a thread that does not outlive the process: who wants the save done calls `wait`."""

    def __init__(self, write: Callable[[], object]) -> None:
        self.seconds = 0.0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(write,), name="unbroken-save", daemon=True)
        self._thread.start()

    @property
    def is_in_the_air(self) -> bool:
        return self._thread.is_alive()

    def wait(self) -> None:
        """Returns when the save is handed over; raises what went wrong."""
        self._thread.join()
        if self._error:
            raise self._error

    def _run(self, write: Callable[[], object]) -> None:
        began = time.monotonic()
        try:
            write()
        except BaseException as error:  # noqa: BLE001  (raised again by wait)
            self._error = error
        self.seconds = time.monotonic() - began
