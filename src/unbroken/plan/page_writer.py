"""The driver keeps `results/report.html` fresh: when a segment has ended, else once a minute, and at its end."""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from unbroken.runs import report_page

MINUTE = 60.0
# Where segments end every second, the page need not follow each.
LEAST_SECONDS = 5.0
LOOK_SECONDS = 1.0
# How long the driver's end waits for the last page.
PATIENCE_SECONDS = 60.0


class PageWriter:
    """A thread of the driver that has the page written by processes of their own, one at a time."""

    def __init__(self, base: Path, workflow: Any) -> None:
        self._base, self._workflow = base, workflow
        self._end = threading.Event()
        self._writing: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="report", daemon=True)

    def begin(self) -> None:
        """From now on, until `end`."""
        if not report_page.is_off():
            self._thread.start()

    def end(self) -> None:
        """Writes it a last time, and returns when it is there; nothing where nobody wants it."""
        if report_page.is_off() or not self._thread.is_alive():
            return
        self._end.set()
        self._thread.join(PATIENCE_SECONDS)
        self._wait()
        self._writing = report_page.begin_writing(self._base)
        self._wait()

    def _watch(self) -> None:
        ended, waited = self._ended(), MINUTE  # at once
        while not self._end.is_set():
            now = self._ended()
            is_due = waited >= MINUTE or (now != ended and waited >= LEAST_SECONDS)
            if is_due and (self._writing is None or self._writing.poll() is not None):
                ended, waited = now, 0.0
                self._writing = report_page.begin_writing(self._base)
            self._end.wait(LOOK_SECONDS)
            waited += LOOK_SECONDS

    def _ended(self) -> int:
        """How many jobs have ended well, as Snakemake's scheduler counts them; the others show within the minute."""
        return int(getattr(getattr(self._workflow, "scheduler", None), "finished_jobs", 0))

    def _wait(self) -> None:
        if self._writing is not None:
            with suppress(subprocess.TimeoutExpired):
                self._writing.wait(PATIENCE_SECONDS)
