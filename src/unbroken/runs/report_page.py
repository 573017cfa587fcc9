"""The page `results/report.html` as those see it who keep it fresh: the process that writes it, and when it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from unbroken.errors import UnbrokenError
from unbroken.runs.beside import start_beside
from unbroken.runs.layout import NOTES, RESULTS
from unbroken.system import fs

PAGE = RESULTS / "report.html"
# `off` where nobody wants the page.
VARIABLE = "UNBROKEN_REPORT"
LOG = NOTES / "report.log"
# The configuration as the driver has it: several files, and what was typed behind --config, are one in there.
CONFIG = NOTES / "report.config.json"
# Changed by whoever has one written, before it is: of many jobs that look, one goes on.
_ASKED = NOTES / "report.asked"
# A page that takes long, of very many runs, is written more seldom: at most so much of the time is spent on it.
MOST_SHARE = 0.02
LEAVING_SECONDS = 5.0


def is_off() -> bool:
    """True where the user wants no page."""
    return os.environ.get(VARIABLE) == "off"


def keep_config(config: Mapping[str, object], base: Path) -> None:
    """Keeps a driver's configuration for those who write the page; where that cannot be, the folder's own counts."""
    with suppress(OSError, UnbrokenError):
        (base / NOTES).mkdir(parents=True, exist_ok=True)
        fs.write_atomic(base / CONFIG, json.dumps(config, default=str) + "\n")


class PageProcess:
    """Has the page of a folder written, one process at a time; `writer` is who that is, in words for the page.

    Without a `config` by the one that a driver has kept, else by the folder's own.
    """

    def __init__(self, base: Path, writer: str, config: Path | None = None) -> None:
        self._base, self._writer, self._config = base, writer, config
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._took = 0.0  # as long as the last one was seen to take

    def is_at_work(self) -> bool:
        """True while one is written; to be asked often."""
        if self._process is None:
            return False
        self._took = time.monotonic() - self._began
        if self._process.poll() is not None:
            self._process = None
        return self._process is not None

    def is_due(self, every: float) -> bool:
        """Return True if nothing is at work, and the last one began `every` seconds ago; longer if that takes long."""
        return not self.is_at_work() and time.monotonic() - self._began >= self._pause(every)

    def begin(self, every: float, at_most_every: float = 0.0) -> None:
        """Begins to write one, which says that the next will be there within `every` seconds; 0: there will be none.

        Nothing where nobody wants it, where one of the folder was asked for less than `at_most_every` seconds ago, or
        where no process or file can be made: nobody's work depends on it.
        """
        if is_off() or self.is_at_work() or _age_seconds(self._base / _ASKED) < at_most_every:
            return
        with suppress(OSError):
            (self._base / NOTES).mkdir(parents=True, exist_ok=True)
            (self._base / _ASKED).touch()
            promised = self._pause(every) if every else 0.0
            config = self._config or (CONFIG if (self._base / CONFIG).is_file() else None)
            words = [sys.executable, "-m", "unbroken.report", f"{promised:.0f}", self._writer]
            words += [str(config)] if config else []
            self._began = time.monotonic()
            self._process = start_beside(words, self._base, self._base / LOG)

    def wait(self, seconds: float) -> None:
        """Until the page is there, at most so long."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)

    def kill(self) -> None:
        """The one who asked is about to leave, and waits for no page."""
        if self.is_at_work() and self._process is not None:
            self._process.kill()
            self.wait(LEAVING_SECONDS)

    def _pause(self, every: float) -> float:
        return max(every, self._took / MOST_SHARE)


def _age_seconds(path: Path) -> float:
    """Infinite if it is not there; also of one from the future, where a clock was set back."""
    try:
        age = time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")
    return age if age >= 0 else float("inf")
