"""Prints what the command line has to say as it reads from where the user stands, whatever `--directory` is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from unbroken.runs.elsewhere import from_here

_chosen = [Path()]


def _keep(directory: Path) -> Path:
    _chosen[0] = directory
    return directory


HERE = Path()
# The option of every command that works on runs.
Directory = Annotated[
    Path, typer.Option("--directory", "-d", help="The working directory of the workflow.", callback=_keep)
]

Config = Annotated[Path, typer.Option("--config", help="The configuration, relative to the working directory.")]


def as_seen(text: str) -> str:
    """The text with its paths and commands made complete."""
    return from_here(text, _chosen[0])


def say(text: str) -> None:
    """To standard output, at once."""
    print(as_seen(text), flush=True)


def complain(text: str) -> None:
    """To standard error, as unbroken's own."""
    print(f"unbroken: {as_seen(text)}", file=sys.stderr, flush=True)
