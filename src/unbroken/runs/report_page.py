"""The page `results/report.html` as those see it who keep it fresh: how old it is, and the process that writes it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from unbroken.runs.layout import NOTES, RESULTS

PAGE = RESULTS / "report.html"
# `off` where nobody wants the page.
VARIABLE = "UNBROKEN_REPORT"
LOG = NOTES / "report.log"
# Changed by whoever has one written, before it is: of many jobs that look, one goes on.
_ASKED = NOTES / "report.asked"
_NICE = 19


def is_off() -> bool:
    """True where the user wants no page."""
    return os.environ.get(VARIABLE) == "off"


def begin_writing(
    base: Path, every: float, writer: str, at_most_every: float = 0.0, config: Path | None = None
) -> subprocess.Popen[bytes] | None:
    """Has the page of the folder `base` written by a process of its own, which gives way to all others.

    The page says that `writer` will have it written again within `every` seconds; 0: nobody will.  None where nobody
    wants it, where it was asked for less than `at_most_every` seconds ago, or where no process or file can be made:
    nobody's work depends on it.
    """
    if is_off() or _age_seconds(base / _ASKED) < at_most_every:
        return None
    words = [sys.executable, "-m", "unbroken.report", str(every), writer]
    with suppress(OSError):
        (base / NOTES).mkdir(parents=True, exist_ok=True)
        (base / _ASKED).touch()
        with (base / LOG).open("wb") as log:
            process = subprocess.Popen(
                [*words, *([str(config)] if config else [])],
                cwd=base,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
        return process
    return None


def _age_seconds(path: Path) -> float:
    """Infinite if it is not there; also of one from the future, where a clock was set back."""
    try:
        age = time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")
    return age if age >= 0 else float("inf")
