"""`unbroken report`: write the page that shows all runs, and open it."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from unbroken.cli.say import Config, Directory, RunNames, say
from unbroken.errors import ConfigError
from unbroken.job.background import PAGE
from unbroken.report.known import CONFIG
from unbroken.report.page import write_report
from unbroken.store.layout import RESULTS


def report(
    only: RunNames = None,
    directory: Directory = Path(),
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
