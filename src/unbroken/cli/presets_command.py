"""`unbroken presets`: the programs that unbroken knows, and what it knows of one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unbroken.cli.say import HERE, directory_option, say
from unbroken.errors import config_error
from unbroken.presets.preset import presets as known_presets
from unbroken.presets.preset import unknown_preset

Words = Annotated[list[str] | None, typer.Argument(metavar="[show NAME]", help="Print the file of one preset.")]
Directory = Annotated[Path, directory_option("The folder whose config/presets/ counts too.")]


def presets(words: Words = None, directory: Directory = HERE) -> None:
    """List the programs that are known, or show what is known of one."""
    known = known_presets(directory)
    name = next(reversed(words or []), "")
    if not name:
        width = max(map(len, known))
        for each in known.values():
            say(f"{each.name:<{width}}  {each.title}{' (tested by a stand-in)' if each.stand_in else ''}")
        return
    if name not in known:
        raise config_error([unknown_preset(name, directory).at("presets")])
    say(f"# {known[name].path}\n{known[name].path.read_text().rstrip()}")
