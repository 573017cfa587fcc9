"""`unbroken watch`: show the table of runs that others drive every two seconds, and write the page once a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live

from unbroken.cli.status_table import screen_of, total_of
from unbroken.errors import ConfigError
from unbroken.job.background import PageProcess
from unbroken.report.status import RunStatus

WATCH_SECONDS = 2.0
PAGE_SECONDS = 60.0
WRITER = "unbroken watch"


def watch(read: Callable[[], Sequence[RunStatus]], directory: Path, config: Path) -> None:
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
