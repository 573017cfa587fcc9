"""A slip of the finger as one line: what was typed, what was probably meant, and the help to type."""

from __future__ import annotations

import re

import typer

from unbroken.config.found import near

# The base of all mistakes in a command line; it has no public name, and typer 0.29 carries a click of its own.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_NAMED = re.compile(r"(no such (?:option: |command '))([^'\s]+)'?", re.IGNORECASE)
_INVALID = re.compile(r"invalid value for '?([^':]+)'?(?: / '[^']+')?: ", re.IGNORECASE)


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
