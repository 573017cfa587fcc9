"""Show how the runs stand: `unbroken status`, `watch`, `account` and `report`."""

from __future__ import annotations

import json
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from unbroken.cli.say import HERE, Config, Directory, RunNames, as_seen, complain, say
from unbroken.cli.status_table import most_needed, print_table, screen_of, total_of
from unbroken.errors import ConfigError, FormatError, StorageError
from unbroken.job.background import PAGE, PageProcess
from unbroken.report.account import Account, account_of
from unbroken.report.known import CONFIG, no_config, run_folder, segment_logs, segment_to_show
from unbroken.report.page import write_report
from unbroken.report.status import RunStatus, statuses
from unbroken.slurm.queue import Queue, RecentQueue, queue_of
from unbroken.store.attempts import all_attempts
from unbroken.store.history import Attempt
from unbroken.store.layout import RESULTS, RunFolder
from unbroken.store.progress import amount
from unbroken.system import fs
from unbroken.system.clock import duration

# While `watch` looks at the files every two seconds, Slurm's controller is asked less often.
QUEUE_SECONDS = 30.0
WATCH_SECONDS = 2.0
PAGE_SECONDS = 60.0
WRITER = "unbroken watch"
SHOWN = 100


def status(
    only: Annotated[
        list[str] | None, typer.Argument(metavar="RUN...", help="Names of runs, with all attempts.")
    ] = None,
    directory: Directory = HERE,
    config: Config = CONFIG,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one JSON list.")] = False,
) -> None:
    """Show progress, time left (ETA) and next step of each run."""
    rows = seen(only, directory, config, queue_of(directory))
    if as_json:
        print(json.dumps([row.to_json() for row in rows], indent=2))
        return
    if not rows:
        raise no_config(directory)
    shown = rows if only else most_needed(rows)
    print_table(shown, rows)
    for row in shown:
        say(f"{row.run}: {row.advice}")
        for line in filter(None, (row.output.words(), row.rehearsal)):
            say(f"{row.run}: {line}")
    for name in only or []:
        say("\n".join([f"{name}:", *attempt_lines(run_folder(name, directory))]))


def watch(
    only: RunNames = None,
    directory: Directory = HERE,
    config: Config = CONFIG,
) -> None:
    """Show the status again and again, whatever started the runs, until Ctrl-C; writes the page once a minute."""
    queue = RecentQueue(directory, QUEUE_SECONDS)
    with suppress(KeyboardInterrupt):
        _show_again(lambda: seen(only, directory, config, queue.look()), directory, config)


def account(
    only: RunNames = None,
    directory: Directory = HERE,
    config: Config = CONFIG,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one JSON list, with all spans.")] = False,
) -> None:
    """Show where the time of each run went: work, saves, losses, starts, queue."""
    queue = queue_of(directory)
    names = [row.run for row in seen(only, directory, config, queue)]
    if not names and not as_json:
        raise no_config(directory)
    found, code = dict[str, Account](), 0
    for name in names:  # one that cannot be read now, or by this unbroken, hides none of the others
        try:
            with fs.os_errors(Path(name)):
                found[name] = account_of(name, directory, queue)
        except (FormatError, StorageError) as error:
            complain(str(error))
            code = 1
    if as_json:
        print(json.dumps([each.to_json(name) for name, each in found.items()], indent=2))
    else:
        for name, each in found.items():
            say("\n".join(each.lines(name)))
    raise typer.Exit(code)


def report(
    only: RunNames = None,
    directory: Directory = HERE,
    config: Config = CONFIG,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file; else results/report.html.")] = None,
    *,
    is_opened: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Write one page that shows all runs: results/report.html."""
    page = output or directory / _default(only or [])
    write_report(directory, config, only or [], page)
    if is_opened and not webbrowser.open(page.resolve().as_uri()):
        say(f"no browser was found here; copy this one file to where there is one: {page.resolve()}")
    else:
        say(str(page.resolve()))


def _default(only: list[str]) -> Path:
    """Return the default file; the page of all runs is not replaced by one of a few."""
    if len(only) > 1:
        raise ConfigError(["report: for several runs, say where to write the page; add -o FILE"])
    return RESULTS / f"report-{only[0].replace('/', '-')}.html" if only else PAGE


def seen(only: list[str] | None, directory: Path, config: Path, queue: Queue) -> list[RunStatus]:
    """Return the state of the runs, with paths and commands as they are typed from here."""
    return [replace(row, advice=as_seen(row.advice)) for row in statuses(only, directory, config, queue)]


# --- status RUN: the attempts ---


def attempt_lines(places: RunFolder) -> Iterator[str]:
    """Make a line for each attempt, below it why it settled nothing or was killed; then the newest log."""
    attempts = all_attempts(places, SHOWN + 1)
    if len(attempts) > SHOWN:
        yield f"the newest {SHOWN}; all: {places.history}"
    for attempt in attempts[-SHOWN:]:
        yield _line(attempt)
        if not attempt.kind.settles or attempt.was_killed_stopping:
            yield f"    {attempt.line()}"
    if logs := segment_logs(places):
        yield f"log: {logs[segment_to_show(places, logs)]}"


def _line(attempt: Attempt) -> str:
    done = f"{amount(attempt.progress_from)} -> {amount(attempt.progress_to)} {attempt.unit}".rstrip()
    job = f", Slurm job {attempt.slurm_job}" if attempt.slurm_job else ""
    where = f"{attempt.slurm_node or attempt.host}{job}"
    ended = attempt.why or attempt.kind
    return (
        f"segment {attempt.segment}  {ended}  {done}  {duration(attempt.work_seconds)} on {where}  {attempt.ended_utc}"
    )


# --- watch ---


def _show_again(read: Callable[[], Sequence[RunStatus]], directory: Path, config: Path) -> None:
    """Show the table again every two seconds until Ctrl-C; raise ConfigError if the output is no terminal."""
    console = Console()
    if not console.is_terminal:
        raise ConfigError(["watch: needs a terminal; type: unbroken status, or --json for programs"])
    page = PageProcess(directory, WRITER, config)
    try:
        with Live(console=console, auto_refresh=False, transient=False) as live:
            while True:
                rows = read()
                total = total_of(rows) if rows else "no runs yet"
                live.update(screen_of(rows, console, total, "Ctrl-C ends this; the runs continue"), refresh=True)
                if rows:
                    page.begin(PAGE_SECONDS)
                time.sleep(WATCH_SECONDS)
    finally:
        page.kill()
        page.begin(0.0)  # it says that there will be no further one
