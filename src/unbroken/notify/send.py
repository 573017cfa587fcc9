"""Runs the user's command for an event: a JSON on its standard input, the words in its environment."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from unbroken.config.notify import NotifySettings
from unbroken.notify.events import Event
from unbroken.notify.notes import claim
from unbroken.runs.layout import NOTES
from unbroken.system.clock import utc_now

_TAIL = 300
# It is never printed itself: it may hold a password.
_NAME = "notify.command"
_LONG_WORDS = re.compile(r"[\w.+~-]{8,}")


def tell_once(event: Event, base: Path, settings: NotifySettings) -> str:
    """Runs the command unless the event is told, or somebody is telling it; a line for the user, empty if nothing."""
    claimed = claim(base / NOTES / "notify" / event.run, event.key, settings.limit_seconds)
    if claimed is None:
        return ""
    if why := send(event, base, settings):
        claimed.failed(why)
        return f"notify: {event.event}: not told: {why}; the next look tries again; event: {event.message}"
    claimed.told()
    return f"notify: {event.event}: told: {event.message}"


def send(event: Event, base: Path, settings: NotifySettings) -> str:
    """Runs the command; why it failed, empty if it did not."""
    text = json.dumps(
        {
            "event": event.event,
            "run": event.run,
            "message": event.message,
            "id": f"{event.run}/{event.key}",
            "folder": str(base.resolve()),
            "host": os.uname().nodename,
            "time": utc_now(),
        }
    )
    words = {f"UNBROKEN_{name.upper()}": str(value) for name, value in json.loads(text).items()}
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", settings.command],
            cwd=base,
            env={**os.environ, **words},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that what it has started ends with it
        )
    except OSError as error:
        return f"{_NAME}: {error.strerror}"
    try:
        said, _ = process.communicate(f"{text}\n".encode(), timeout=settings.limit_seconds)
    except subprocess.TimeoutExpired:
        return f"{_NAME}: still running after {settings.limit_seconds:g} s, so it was ended"
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(BrokenPipeError), process:  # closes its pipes
            pass
    if process.returncode == 0:
        return ""
    tail = " ".join(_without_words(said.decode(errors="replace"), settings.command).split())[-_TAIL:]
    return f"{_NAME}: exit code {process.returncode}{f', {tail}' if tail else ''}"


def _without_words(said: str, command: str) -> str:
    """Leave out of a program's output what may be a password or an address in the command, but not its first word."""
    first, _, _ = command.partition(" ")
    secret = command if "=" in first else command.removeprefix(first)
    for word in sorted(set(_LONG_WORDS.findall(secret)), key=len, reverse=True):
        said = said.replace(word, "...")
    return said
