"""`unbroken notify`: look once at the runs and send notifications of what is new; or send a test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from unbroken.cli.say import HERE, Config, Directory, say
from unbroken.cli.status_commands import seen
from unbroken.config.notify import NotifySettings, read_notify
from unbroken.engines.found import known_schemas
from unbroken.errors import ConfigError
from unbroken.report.known import CONFIG, config_of, run_folder, runs_of
from unbroken.report.notifications import Event, Look, events_of, send, tell_once
from unbroken.slurm.client import has_command
from unbroken.slurm.queue import queue_of
from unbroken.slurm.this_job import own_job_id


def notify(
    directory: Directory = HERE,
    config: Config = CONFIG,
    *,
    is_check: Annotated[bool, typer.Option("--check", help="Look once, and tell what was not told; for cron.")] = False,
    is_test: Annotated[
        bool, typer.Option("--test", help="Run the command of `notify:` with a test, and show its output.")
    ] = False,
    is_ended: Annotated[bool, typer.Option("--ended", hidden=True)] = False,
) -> None:
    """Send notifications by the command that `notify:` in the configuration names."""
    if is_check == is_test:
        raise ConfigError(
            ["notify: found neither --check nor --test; type: unbroken notify --check, or: unbroken notify --test"]
        )
    list(runs_of(directory, config, must_exist=True))
    settings = read_notify(config_of(directory / config), known_schemas().config)
    if settings is None:
        raise ConfigError(
            [f"{directory / config}: has no `notify:`; type for example `notify: {{command: ./tell.sh}}`"]
        )
    if is_test:
        _try_out(directory, settings)
    else:
        queue = queue_of(directory)
        own = own_job_id()  # the job that looks at its own end does not count as active
        out = tuple(job for job in queue.out if job.job_id != own or not is_ended)
        rows = seen(None, directory, config, replace(queue, out=out))
        is_silent = has_command("squeue") and not queue.is_known
        _check(Look(rows, is_ended, is_silent), directory, settings)


def _check(look: Look, base: Path, settings: NotifySettings) -> None:
    """Send the notifications that were not sent yet; a failure of the command is printed, and ends nothing."""
    for row in look.rows:
        try:
            events = list(events_of(row, run_folder(row.run, base), look, settings))
            lines = [tell_once(event, base, settings) for event in events]
        except OSError as error:  # of this run alone
            lines = [f"notify: {row.run}: {error}"]
        for line in filter(None, lines):
            say(line)


def _try_out(base: Path, settings: NotifySettings) -> None:
    """Run the command with a test, and show its output; raise ConfigError with what went wrong."""
    event = Event("test", "test", "test", "unbroken: a test; this is how a notification about your runs will look")
    if why := send(event, base, settings, is_shown=True):
        raise ConfigError([why])
    say("notify: sent a test; the command's exit code is 0")
