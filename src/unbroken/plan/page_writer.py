"""The driver keeps `results/report.html` fresh: when a segment has ended, else once a minute, and at its end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unbroken.runs import report_page
from unbroken.runs.report_page import PageProcess

MINUTE = 60.0
WRITER = "The snakemake that drives these runs"
# Where segments end every second, the page need not follow each.
LEAST_SECONDS = 5.0
LOOK_SECONDS = 1.0
# How long the driver's end waits for the last page.
PATIENCE_SECONDS = 30.0


def written_page(base: Path) -> list[str]:
    """The page, as an input that exists: empty before the first one is written."""
    return [str(report_page.PAGE)] if (base / report_page.PAGE).is_file() else []


class PageWriter:
    """A thread of the driver that has the page written by processes of their own."""

    def __init__(self, base: Path, workflow: Any, config: Mapping[str, object]) -> None:
        self._base, self._workflow, self._config = base, workflow, config
        self._page = PageProcess(base, WRITER)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="report", daemon=True)

    def begin(self) -> None:
        """From now on, until `end`."""
        if not report_page.is_off():
            report_page.keep_config(self._config, self._base)
            self._thread.start()

    def end(self) -> None:
        """Writes it a last time, and returns when it is there; nothing where nobody wants it."""
        if report_page.is_off() or not self._thread.is_alive():
            return
        self._end.set()
        self._thread.join(PATIENCE_SECONDS)
        self._page.wait(PATIENCE_SECONDS)
        self._page.begin(0.0)
        self._page.wait(PATIENCE_SECONDS)

    def _watch(self) -> None:
        ended = self._ended()
        self._page.begin(MINUTE)
        while not self._end.wait(LOOK_SECONDS):
            now = self._ended()
            if self._page.is_due(MINUTE) or (now != ended and self._page.is_due(LEAST_SECONDS, is_news=True)):
                ended = now
                self._page.begin(MINUTE)

    def _ended(self) -> int:
        """How many jobs have ended well, as Snakemake's scheduler counts them; the others show within the minute."""
        return int(getattr(getattr(self._workflow, "scheduler", None), "finished_jobs", 0))
