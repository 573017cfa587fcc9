"""Without a driver, a job that works keeps `results/report.html` fresh: one of the folder, every ten minutes."""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress

from unbroken.runs import report_page

EVERY_SECONDS = 600.0
LOOK_SECONDS = 60.0
LEAVING_SECONDS = 5.0


class PageKeeper:
    """A thread of the job's first process; the work and the next job's submission come before it."""

    def __init__(self) -> None:
        self._end = threading.Event()
        self._writing: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="report", daemon=True)

    def begin(self) -> None:
        """From now on, until `end`; once."""
        if not self._thread.ident:
            self._thread.start()

    def end(self) -> None:
        """The job is about to leave, and waits for no page."""
        self._end.set()
        if self._writing is not None and self._writing.poll() is None:
            self._writing.kill()
            with suppress(subprocess.TimeoutExpired):
                self._writing.wait(LEAVING_SECONDS)

    def _watch(self) -> None:
        while not self._end.is_set():
            if self._writing is None or self._writing.poll() is not None:
                self._writing = report_page.begin_writing(at_most_every=EVERY_SECONDS)
            self._end.wait(LOOK_SECONDS)
