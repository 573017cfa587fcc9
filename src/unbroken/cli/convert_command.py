"""`unbroken convert`: a site's Slurm script as a run in a config, or with `unbroken exec` in it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from unbroken.cli.init_command import begin, partitions_here
from unbroken.cli.say import HERE, directory_option
from unbroken.config.found import absent
from unbroken.convert.conversion import Conversion, convert
from unbroken.convert.script import Script
from unbroken.errors import ConfigError

ScriptFile = Annotated[Path, typer.Argument(metavar="SCRIPT", help="What you give to sbatch, or what submits it.")]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="ARGUMENTS", help="Arguments of the script, as after its name for sbatch."),
]
Name = Annotated[str, typer.Option("--name", help="The run's name; --job-name of the script, else its own name.")]
Directory = Annotated[Path, directory_option("The folder in which the script is submitted.")]
Slurm = Annotated[bool, typer.Option("--slurm", help="With the profile for Slurm; done by itself where sinfo is.")]
Shown = Annotated[bool, typer.Option("--print", help="Print the config or the script alone; write nothing.")]


def convert_script(
    script: ScriptFile,
    arguments: Arguments = None,
    name: Name = "",
    directory: Directory = HERE,
    slurm: Slurm = False,
    is_printed: Shown = False,
) -> None:
    """Makes a config of a Slurm script, or puts `unbroken exec` into it; overwrites nothing."""
    if not script.exists():
        raise ConfigError([f"convert: {absent(str(script), Path())}"])
    found = convert(Script(script.name, script.read_text(errors="replace"), directory), arguments or [], name)
    if is_printed:
        print(found.config_text() if found.configs else found.exec_text, end="")
        return
    for line in _written(found, directory, is_on_slurm=slurm) if found.configs else _exec_written(found, directory):
        print(line)


def _written(found: Conversion, directory: Path, *, is_on_slurm: bool) -> Iterator[str]:
    """Write the config and yield what was done and what to type."""
    partitions = partitions_here()
    is_on_slurm = is_on_slurm or bool(partitions)
    yield from begin(found.configs[0].run, found.config_text, directory, is_on_slurm, partitions)
    yield from found.notes()
    at = [] if directory == HERE else ["-d", str(directory)]
    if not found.lacks_state:
        yield f"type: {shlex.join(['unbroken', 'run', *at, *(['--slurm'] if is_on_slurm else [])])}"


def _exec_written(found: Conversion, directory: Path) -> Iterator[str]:
    """Write the script with `unbroken exec` and yield what was done and what to type."""
    path = directory / found.exec_name
    if path.exists() and path.read_text(errors="replace") != found.exec_text:
        yield f"{path}: yours, left as it is; the script would be:"
        yield found.exec_text
        return
    path.write_text(found.exec_text)
    yield f"{path}: written"
    yield from found.notes()
    if not found.lacks_state:
        yield f"type: {found.submit_line}"
