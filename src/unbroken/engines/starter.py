"""Describe what `unbroken init` can create: a run that an engine makes from the files of a folder."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from unbroken.config.found import absent
from unbroken.errors import ConfigError


@dataclass(frozen=True)
class Starter:
    """Describe a run for a new configuration.

    `source` is the file by which it was found, empty if it was not found but asked for.  `settings` are lines of YAML
    with their comments, `minutes` those of a segment.  `todo` is what the user still has to do, a line each; `diff`
    the lines that a program needs first, which `patch` understands.
    """

    run: str
    source: str
    settings: tuple[str, ...]
    minutes: float = 60
    uses_gpu: bool = False
    todo: tuple[str, ...] = ()
    diff: str = ""
    named: str = ""  # what to type for this one, if that is more than `source`


def files_like(folder: Path, *patterns: str) -> list[Path]:
    """Return the folder's files whose names match one of the patterns, in alphabetical order."""
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})


def given_file(engine: str, folder: Path, words: Sequence[str]) -> Path | None:
    """Return the file that the first word names, None without words; raise ConfigError if it does not exist."""
    if not words:
        return None
    path = folder / words[0]
    if not path.is_file():
        raise ConfigError([f"init {engine}: {absent(words[0], folder)}"])
    return path


def run_name(text: str, otherwise: str) -> str:
    """Make a run's name from a file's name: digits, letters and `_` alone."""
    name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in text).strip("_")
    return name or otherwise


def in_own_folder(folder: Path, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a command line as it is in a folder of its own, and the files of this folder that it names, each once.

    There its files have only their last names.
    """
    files = [word for word in words if os.path.isfile(folder / word)]
    seen = [PurePath(word).name if word in files else word for word in words]
    program = f"./{seen[0]}" if words[0] in files else seen[0]
    return [program, *seen[1:]], list(dict.fromkeys(str(PurePath(word)) for word in files))


def config_text(runs: Sequence[str], *, is_in_workflow: bool = False) -> str:
    """Return a new config of lines below `runs:`; below the key `unbroken` where it is part of another workflow."""
    lines = ["runs:", *runs]
    lines = ["unbroken:", *(f"  {line}" for line in lines)] if is_in_workflow else lines
    return "\n".join(["# All keys: docs/config.md. What would be done: snakemake -n", *lines, ""])


def not_installed(package: str) -> tuple[str, ...]:
    """Return what to do if unbroken's own Python lacks a package that the program imports; () if it has it."""
    if importlib.util.find_spec(package) is not None:
        return ()
    return (
        f"{package} is not installed in {sys.executable}; name the Python that has it in `settings:`, by `python:`",
    )


def as_yaml(value: object) -> str:
    """Return the value as YAML on one line, such as `[python3, orbit.py, 0.01]`."""
    import yaml  # here: every segment loads this module, and no segment needs YAML

    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")
