"""Without a driver, a job that works keeps `results/report.html` fresh: one of the folder, every ten minutes."""

from __future__ import annotations

import threading
from pathlib import Path

from unbroken.runs.report_page import PageProcess

EVERY_SECONDS = 600.0
LOOK_SECONDS = 60.0
LAST_SECONDS = 60.0
LEAVING_SECONDS = 2.0
WRITER = "A job of a run, while one is at work,"


class PageKeeper:
    """A thread of the job's first process; the work and the next job's submission come before it."""

    def __init__(self) -> None:
        self._page = PageProcess(Path(), WRITER)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="report", daemon=True)

    def begin(self) -> None:
        """From now on, until `end`; once."""
        if not self._thread.ident:
            self._thread.start()

    def end(self) -> None:
        """The job is about to leave, and waits for no page."""
        self._end.set()
        if self._thread.ident:
            self._thread.join(LEAVING_SECONDS)  # it may just be about to start one
        self._page.kill()

    def _watch(self) -> None:
        while not self._end.is_set():
            self._page.begin(EVERY_SECONDS, at_most_every=EVERY_SECONDS)
            self._end.wait(LOOK_SECONDS)


def write_last() -> None:
    """Writes the page when nobody will write another one, and waits for it: this job has nothing else to do."""
    page = PageProcess(Path(), WRITER)
    page.begin(0.0)
    page.wait(LAST_SECONDS)
    page.kill()
