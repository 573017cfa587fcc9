"""Starts the look that tells what has happened (`unbroken notify --check`), where the config has `notify:`."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from unbroken.runs.beside import start_beside
from unbroken.runs.layout import NOTES

_FOLDER = NOTES / "notify"
LOG = _FOLDER / "log.txt"


def want(is_wanted: bool, base: Path) -> None:
    """Notes for the jobs of this folder, which read no config, whether somebody is to be told."""
    marker = base / _FOLDER / "wanted"
    if is_wanted:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    else:
        marker.unlink(missing_ok=True)


def start(base: Path, is_over: bool = False) -> subprocess.Popen[bytes] | None:
    """Starts a look and returns at once; `is_over` if whoever drove the runs drives them no more."""
    if not (base / _FOLDER / "wanted").exists():
        return None
    words = [sys.executable, "-m", "unbroken", "notify", "--check", *(["--ended"] if is_over else [])]
    return start_beside(words, base, base / LOG, is_kept=True)


def start_and_wait(base: Path, seconds: float) -> None:
    """For the last job of a run, whose end would end the look; nobody waits for that job."""
    process = start(base, is_over=True)
    if process is not None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
