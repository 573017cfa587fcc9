"""`unbroken exec`, and `unbroken launcher` for rules whose environment hides it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import typer

from unbroken.cli.say import say
from unbroken.errors import ConfigError
from unbroken.exec.main import main as exec_main

_MARK = "# Made by: unbroken launcher"
PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def exec_command(context: typer.Context) -> None:
    """Run a program of yours so that it resumes where it was; see: unbroken exec --help."""
    raise SystemExit(exec_main(context.args))  # the command line begins elsewhere (begin.py), without typer


def launcher() -> None:
    """Write ~/.local/bin/unbroken, for rules whose conda environment hides this one."""
    path = Path.home() / ".local/bin/unbroken"
    text = f'#!/bin/sh\n{_MARK}\nexec {shlex.quote(sys.executable)} -m unbroken "$@"\n'
    if os.path.lexists(path) and not (path.is_file() and _MARK in path.read_text(errors="replace")):
        raise ConfigError([f"{path}: is there, and not made by unbroken launcher; move it away, then type it again"])
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(".unbroken.draft")
    draft.write_text(text)
    draft.chmod(0o755)
    os.replace(draft, path)
    is_first = shutil.which("unbroken") == str(path)
    found = "" if is_first else f"; in PATH another one, or none, comes first: {shutil.which('unbroken') or 'none'}"
    say(f"{path}: starts {sys.executable} -m unbroken{found}")
