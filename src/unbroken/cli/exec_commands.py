"""Commands for runs of `unbroken exec` alone: begin from zero, take another command line, write a launcher."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import typer

from unbroken.cli.say import say
from unbroken.errors import ConfigError
from unbroken.exec.call import accept_refused, read_call
from unbroken.exec.main import main as exec_main
from unbroken.exec.stores import set_aside
from unbroken.report.known import goes_on_with
from unbroken.store import lease
from unbroken.store.layout import STORES, RunFolder
from unbroken.system import log

_MARK = "# Made by: unbroken launcher"
PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def exec_command(context: typer.Context) -> None:
    """Run a program of yours so that it resumes where it was; see: unbroken exec --help."""
    raise SystemExit(exec_main(context.args))  # the command line begins elsewhere (begin.py), without typer


def accept_command_line(places: RunFolder, store: Path) -> None:
    """Make the command line that was refused last the run's own."""
    say(f"{places.name}: accepted: {accept_refused(store)}; it goes on with {goes_on_with(places, '')}")


def begin_anew(places: RunFolder, store: Path) -> None:
    """Move everything to a backup, as --anew does, without a program; raise ConfigError if the run is held."""
    with log.lines_to(say), lease.take(places.lease, 0, 0.0):
        aside = set_aside(places, places.base / STORES / ".restarted" / places.name)
        if (call := read_call(store)) is not None:
            replace(call, is_finished=False).write(store)
    say(f"{places.name}: everything so far is now in {aside}; it begins anew with {goes_on_with(places, '')}")


def launcher() -> None:
    """Write ~/.local/bin/unbroken, for rules whose conda environment hides this one."""
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
