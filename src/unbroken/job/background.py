"""Run processes in the background: the writer of `results/report.html`, and the one that sends notifications.

No process waits for them, and they harm none.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from unbroken.errors import UnbrokenError
from unbroken.store.layout import NOTES, RESULTS
from unbroken.system import fs

_NICENESS = 10

PAGE = RESULTS / "report.html"
# `off` where the page is not wanted.
VARIABLE = "UNBROKEN_REPORT"
# The configuration as the driver has it: several files, and what was typed behind --config, are one in there.
CONFIG = NOTES / "report.config.json"
_PAGE_LOG = NOTES / "report.log"
# Changed by the job that is about to write a page: of many jobs that look, only one continues.
_ASKED = NOTES / "report.asked"
LEAVING_SECONDS = 5.0

_NOTIFY = NOTES / "notify"


def start(words: Sequence[str], folder: Path, log: Path, *, is_kept: bool = False) -> subprocess.Popen[bytes] | None:
    """Start a command in a folder, in a session of its own and with low priority; None if that cannot be.

    What it prints goes to `log`, after what stood there if that `is_kept`.
    """
    with suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab" if is_kept else "wb") as file:
            process = subprocess.Popen(
                words, cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        with suppress(OSError):
            own = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, process.pid, max(own, _NICENESS))
        return process
    return None


# --- the page ---


def is_page_off() -> bool:
    """Return True where the user wants no page."""
    return os.environ.get(VARIABLE) == "off"


def keep_config(config: Mapping[str, object], base: Path) -> None:
    """Keep a driver's configuration for the writers of the page; where that fails, the folder's own counts."""
    with suppress(OSError, UnbrokenError):
        (base / NOTES).mkdir(parents=True, exist_ok=True)
        fs.write_atomic(base / CONFIG, json.dumps(config, default=str) + "\n")


class PageProcess:
    """Start the writer of a folder's page, one process at a time; `writer` describes the caller for the page.

    Without a `config` by the one that a driver has kept, else by the folder's own.
    """

    def __init__(self, base: Path, writer: str, config: Path | None = None) -> None:
        self._base, self._writer, self._config = base, writer, config
        self._process: subprocess.Popen[bytes] | None = None
        self._began = -math.inf

    def is_at_work(self) -> bool:
        """Return True while one is written."""
        return self._process is not None and self._process.poll() is None

    def begin(self, every: float) -> None:
        """Start to write a page, which announces the next one within `every` seconds; 0: there will be none.

        Do nothing where the page is not wanted, where this or another writer of the folder began one less than `every`
        seconds ago, or where no process or file can be made: no other work depends on it.
        """
        asked, now = self._base / _ASKED, time.monotonic()
        if is_page_off() or self.is_at_work() or now - self._began < every:
            return
        with suppress(OSError):
            if asked.exists() and 0 <= time.time() - asked.stat().st_mtime < every:
                return
            asked.parent.mkdir(parents=True, exist_ok=True)
            asked.touch() if every else asked.unlink(missing_ok=True)  # after the last one, another writer may begin
            config = self._config or (CONFIG if (self._base / CONFIG).is_file() else None)
            words = [sys.executable, "-m", "unbroken.report", f"{every:.0f}", self._writer]
            words += [str(config)] if config else []
            self._began = now
            self._process = start(words, self._base, self._base / _PAGE_LOG)

    def wait(self, seconds: float) -> None:
        """Wait until the page is there, at most so long."""
        _wait(self._process, seconds)

    def kill(self) -> None:
        """End the process: its caller is about to leave, and waits for no page."""
        if self.is_at_work() and self._process is not None:
            self._process.kill()
            self.wait(LEAVING_SECONDS)


# --- notifications ---


def want_notifications(*, is_wanted: bool, base: Path) -> None:
    """Note for the jobs of this folder, which read no config, whether it has `notify:`."""
    marker = base / _NOTIFY / "wanted"
    if is_wanted:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    else:
        marker.unlink(missing_ok=True)


def notify(base: Path, *, is_over: bool = False, wait_seconds: float = 0.0) -> None:
    """Start `unbroken notify --check`, where wanted; `is_over` if the caller drives the runs no more.

    The last job of a run, whose end would end the process, waits for it.
    """
    if (base / _NOTIFY / "wanted").exists():
        words = [sys.executable, "-m", "unbroken", "notify", "--check", *(["--ended"] if is_over else [])]
        process = start(words, base, base / _NOTIFY / "log.txt", is_kept=True)
        if wait_seconds:
            _wait(process, wait_seconds)


def _wait(process: subprocess.Popen[bytes] | None, seconds: float) -> None:
    if process is not None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
