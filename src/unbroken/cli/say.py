"""Print messages with paths and commands that hold in the user's working directory, whatever `--directory` is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

from unbroken.config.found import absent
from unbroken.errors import ConfigError
from unbroken.plan.elsewhere import from_here

_chosen = [Path()]


def _keep(directory: Path) -> Path:
    if not directory.is_dir():
        raise ConfigError([f"--directory: {absent(str(directory), Path(), 'there is no such folder')}"])
    _chosen[0] = directory
    return directory


HERE = Path()


def directory_option(text: str) -> OptionInfo:
    """Return the option `-d`: a folder that is there, from which all that is printed is seen."""
    option: OptionInfo = typer.Option("--directory", "-d", help=text, callback=_keep)
    return option


# What every command on runs takes.
Directory = Annotated[Path, directory_option("The working directory of the workflow.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="The name of a run.")]
RunNames = Annotated[list[str] | None, typer.Argument(metavar="RUN...", help="Names of runs; all if none.")]
Config = Annotated[Path, typer.Option("--config", help="The configuration, relative to the working directory.")]


def as_seen(text: str) -> str:
    """Return the text with its paths and commands made complete."""
    return from_here(text, _chosen[0])


def say(text: str) -> None:
    """Print to standard output, at once."""
    print(as_seen(text), flush=True)


def complain(text: str) -> None:
    """Print to standard error, prefixed with `unbroken:`."""
    print(f"unbroken: {as_seen(text)}", file=sys.stderr, flush=True)
