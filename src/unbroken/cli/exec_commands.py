"""What concerns runs of `unbroken exec` alone: beginning anew, another command line, a launcher for other rules."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import typer
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from unbroken.cli.say import say
from unbroken.errors import ConfigError
from unbroken.exec.anew import set_old_aside
from unbroken.exec.call import accept_refused, read_call
from unbroken.exec.main import main as exec_main
from unbroken.exec.options import USAGE, parser
from unbroken.report.run_folders import goes_on_with
from unbroken.runs import lease
from unbroken.runs.layout import STORES, RunFolder
from unbroken.system.clock import folder_stamp, utc_now

_MARK = "# Made by: unbroken launcher"
PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def exec_command(context: typer.Context) -> None:
    """Runs a program of yours so that it goes on where it was; see: unbroken exec --help."""
    raise SystemExit(exec_main(context.args))  # the command line begins elsewhere (begin.py), without typer


def print_exec_help() -> None:
    """Print the options of `unbroken exec` as the other commands print theirs."""
    asked, console = parser(), Console()
    table = Table.grid(padding=(0, 2))
    for action in asked._actions:
        value = action.metavar or ("" if action.nargs == 0 else "NUMBER" if action.type in (int, float) else "TEXT")
        names = Text(", ".join(reversed(action.option_strings)), style="bold cyan")
        told = "|".join(map(str, action.choices)) if action.choices else str(value)
        table.add_row(names, Text(told, style="bold yellow"), Text((action.help or "") % vars(action)))
    console.print(Padding(Text(f"Usage: {USAGE}", style="bold"), 1))
    console.print(Padding(Text(asked.description or ""), (0, 1, 1, 1)))
    console.print(Panel(table, title="Options", title_align="left", border_style="dim"))


def accept_command_line(places: RunFolder, store: Path) -> None:
    """The command line that was refused last is from now on the run's own."""
    (change,) = accept_refused(store)
    say(f"{places.name}: accepted: {change}; it goes on with {goes_on_with(places, '')}")


def begin_anew(places: RunFolder, store: Path) -> None:
    """As --anew does, without a program; ConfigError if somebody works on it."""
    with lease.take(places.lease, 0, 0.0, say):
        kept = places.base / STORES / ".restarted" / f"{places.name}_{folder_stamp(utc_now())}"
        aside = set_old_aside(places, kept)
        if (call := read_call(store)) is not None:
            call.unfinished().write(store)
    say(f"{places.name}: everything so far is now in {aside}; it begins anew with {goes_on_with(places, '')}")


def launcher() -> None:
    """Writes ~/.local/bin/unbroken, for rules whose conda environment hides this one."""
    path = Path.home() / ".local/bin/unbroken"
    text = f'#!/bin/sh\n{_MARK}\nexec {shlex.quote(sys.executable)} -m unbroken "$@"\n'
    if os.path.lexists(path) and _MARK not in _text(path):
        raise ConfigError([f"{path}: is there, and not made by unbroken launcher; move it away, then type it again"])
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(".unbroken.draft")
    draft.write_text(text)
    draft.chmod(0o755)
    os.replace(draft, path)
    is_first = shutil.which("unbroken") == str(path)
    found = "" if is_first else f"; in PATH another one, or none, comes first: {shutil.which('unbroken') or 'none'}"
    say(f"{path}: starts {sys.executable} -m unbroken{found}")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
