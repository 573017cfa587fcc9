"""`unbroken notify`: look once at the runs and send notifications of what is new; or send a test."""

from __future__ import annotations

from pathlib import Path

from unbroken.cli.say import say
from unbroken.config.notify import NotifySettings
from unbroken.errors import ConfigError
from unbroken.report.known import run_folder
from unbroken.report.notifications import Event, Look, events_of, send, tell_once


def check(look: Look, base: Path, settings: NotifySettings) -> None:
    """Send the notifications that were not sent yet; a failure of the command is printed, and ends nothing."""
    for row in look.rows:
        try:
            events = list(events_of(row, run_folder(row.run, base), look, settings))
            lines = [tell_once(event, base, settings) for event in events]
        except OSError as error:  # of this run alone
            lines = [f"notify: {row.run}: {error}"]
        for line in filter(None, lines):
            say(line)


def try_out(base: Path, settings: NotifySettings) -> None:
    """Run the command with a test, and show its output; raise ConfigError with what went wrong."""
    event = Event("test", "test", "test", "unbroken: a test; this is how a notification about your runs will look")
    if why := send(event, base, settings, is_shown=True):
        raise ConfigError([why])
    say("notify: sent a test; the command's exit code is 0")
