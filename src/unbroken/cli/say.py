"""Print messages with paths and commands that hold in the user's working directory, whatever `--directory` is."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

from unbroken.config.found import absent, near
from unbroken.errors import ConfigError
from unbroken.plan.elsewhere import from_here

_chosen = [Path()]
# The base of all mistakes in a command line; it has no public name, and typer 0.29 carries a click of its own.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_NAMED = re.compile(r"(no such (?:option: |command '))([^'\s]+)'?", re.IGNORECASE)
_INVALID = re.compile(r"invalid value for '?([^':]+)'?(?: / '[^']+')?: ", re.IGNORECASE)


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


def one_line(error: Exception) -> str:
    """Return `status: no such option: --jsn; did you mean `--json`?; type: unbroken status --help`."""
    context = getattr(error, "ctx", None)
    path = context.command_path.split() if context else ["unbroken"]
    text = _INVALID.sub(r"\1: ", str(getattr(error, "format_message", error.__str__)()).rstrip("."))
    if found := _NAMED.match(text):
        guess = near(found[2], _known(context))
        text = found[0] + (f"; did you mean `{guess}`?" if guess else "")
    return f"{': '.join([*path[1:], text[:1].lower() + text[1:]])}; type: {' '.join(path)} --help"


def _known(context: object) -> list[str]:
    """Return the options, and the commands, that there are where the mistake was made."""
    command = getattr(context, "command", None)
    options = [name for param in getattr(command, "params", []) for name in param.opts]
    return [*options, *getattr(command, "commands", {})]
