"""Runs for which the queue had no room: a job of another run that makes some submits them."""

from __future__ import annotations

import glob
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

from unbroken.runs.layout import NOTES

LEFT_OUT = ".left-out"
TAKEN = ".taken-"
# A process that took a run and did not say what came of it for so long was killed over it.
PATIENCE_SECONDS = 1800.0


def leave_out(run: str) -> None:
    """Note that the queue had no room for any job of this run."""
    NOTES.mkdir(parents=True, exist_ok=True)
    (NOTES / f"{quote(run, safe='')}{LEFT_OUT}").touch()


def forget(run: str, base: Path = Path()) -> None:
    """Let no job submit a run later: it begins again when its user starts it."""
    for path in (base / NOTES).glob(f"{glob.escape(quote(run, safe=''))}{LEFT_OUT}*"):
        path.unlink(missing_ok=True)


@contextmanager
def left_out() -> Iterator[str]:
    """Give a run that was left out, which the caller, and no other process, submits inside the block; else ''."""
    for path in sorted(NOTES.glob(f"*{LEFT_OUT}")):
        # A name of our own: where there is no room, the next one takes the run before we are out of the block.
        taken = path.with_name(f"{path.name}{TAKEN}{uuid.uuid4().hex}")
        try:
            os.utime(path)
            os.replace(path, taken)
        except OSError:  # another process was quicker
            continue
        try:
            yield unquote(path.name.removesuffix(LEFT_OUT))
        finally:
            taken.unlink(missing_ok=True)
        return
    yield ""


def any_left_out() -> bool:
    """Return True if a run still waits for room in the queue, also while a process tries whether there is some."""
    return any(NOTES.glob(f"*{LEFT_OUT}")) or any(map(_is_fresh, NOTES.glob(f"*{LEFT_OUT}{TAKEN}*")))


def _is_fresh(path: Path) -> bool:
    """Return False if the process that took the run was killed over it; also where a clock was set back since."""
    try:
        return abs(time.time() - path.stat().st_mtime) < PATIENCE_SECONDS
    except OSError:
        return False
