"""Notifications: the user's command runs once for each event, however many processes look.

Files below `.snakemake/unbroken/notify/RUN` say which process may send an event, and if it was sent: `KEY.try1` (a
process runs the command), `KEY.failed1` (it failed), `KEY.told` (it took the event).  Only one process can make each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from unbroken.config.notify import NotifySettings
from unbroken.report.events import Event
from unbroken.store.layout import NOTES
from unbroken.system import fs
from unbroken.system.clock import utc_now

# The command itself is never printed: it may hold a password.
_NAME = "notify.command"
# A command that fails everywhere is not tried forever.
MOST_TRIES = 1000


def tell_once(event: Event, base: Path, settings: NotifySettings) -> str:
    """Run the command unless the event was sent, or another process is sending it; return a line about it, or ''."""
    folder = base / NOTES / "notify" / event.run
    number = _take(folder, event.key, settings.limit_seconds)
    if number is None:
        return ""
    if why := send(event, base, settings):
        fs.create_exclusive(folder / f"{event.key}.failed{number}", f"{why}\n")
        see = "to see its output, type: unbroken notify --test"
        return f"notify: {event.event}: not told: {why}; the next look tries again; {see}; event: {event.message}"
    fs.create_exclusive(folder / f"{event.key}.told", "")
    return f"notify: {event.event}: told: {event.message}"


def send(event: Event, base: Path, settings: NotifySettings, *, is_shown: bool = False) -> str:
    """Run the command; return why it failed, or ''.  Its output may hold a password: it is shown only if you ask."""
    words = {
        **vars(event),
        "id": f"{event.run}/{event.key}",
        "folder": str(base.resolve()),
        "host": os.uname().nodename,
        "time": utc_now(),
    }
    del words["key"]
    output = None if is_shown else subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", settings.command],
            cwd=base,
            env={**os.environ, **{f"UNBROKEN_{name.upper()}": value for name, value in words.items()}},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,  # so that what it has started ends with it
        )
    except OSError as error:
        return f"{_NAME}: {error.strerror}"
    try:
        process.communicate(f"{json.dumps(words)}\n".encode(), timeout=settings.limit_seconds)
    except subprocess.TimeoutExpired:
        return f"{_NAME}: still running after {settings.limit_seconds:g} s, so it was ended"
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(BrokenPipeError), process:  # closes its pipe
            pass
    return f"{_NAME}: exit code {process.returncode}" if process.returncode else ""


def _take(folder: Path, key: str, limit_seconds: float) -> int | None:
    """Return the number of the try that this process makes; None if the event was sent, or another process is at it.

    A try that was killed is over when it is older than the command may take, twice over.
    """
    folder.mkdir(parents=True, exist_ok=True)
    told = folder / f"{key}.told"
    for number in range(1, MOST_TRIES + 1):
        if told.exists():
            return None
        path = folder / f"{key}.try{number}"
        if fs.create_exclusive(path, ""):
            return None if told.exists() else number  # another process may have sent it in between
        is_over = (folder / f"{key}.failed{number}").exists()
        if not is_over and fs.now_of(folder) - path.stat().st_mtime < 2 * limit_seconds + 60:
            return None
    return None
