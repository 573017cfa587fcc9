"""`unbroken convert`: a site's Slurm script as a run in a config, or with `unbroken exec` in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from unbroken.cli.init_command import Slurm, begin, partitions_here, run_line
from unbroken.cli.say import HERE, directory_option
from unbroken.config.found import absent
from unbroken.convert.conversion import Conversion, convert
from unbroken.convert.script import Script
from unbroken.engines.found import read_checked_runs
from unbroken.engines.starter import config_text
from unbroken.errors import ConfigError

ScriptFile = Annotated[Path, typer.Argument(metavar="SCRIPT", help="What you give to sbatch, or what submits it.")]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="ARGUMENTS", help="Arguments of the script, as after its name for sbatch."),
]
Name = Annotated[str, typer.Option("--name", help="The run's name; --job-name of the script, else its own name.")]
Directory = Annotated[Path, directory_option("The folder in which the script is submitted.")]
Shown = Annotated[bool, typer.Option("--print", help="Print the config or the script alone; write nothing.")]


def convert_script(
    script: ScriptFile,
    arguments: Arguments = None,
    name: Name = "",
    *,
    directory: Directory = HERE,
    slurm: Slurm = False,
    is_printed: Shown = False,
) -> None:
    """Make a config of a Slurm script, or put `unbroken exec` into it; overwrites nothing."""
    if not script.exists():
        raise ConfigError([f"convert: {absent(str(script), Path())}"])
    found = convert(Script(script.name, script.read_text(errors="replace"), directory), arguments or [], name)
    if is_printed:
        print(config_text(found.config) if found.config else found.exec_text, end="")
        return
    if found.config:
        is_on_slurm = slurm or bool(partitions_here())
        written = begin(found.run, found.config, directory, is_on_slurm=is_on_slurm)
        line = run_line(directory, is_on_slurm=is_on_slurm)
    else:
        written, line = iter(_exec_written(found, directory)), found.submit_line
    mistakes = _mistakes(found, directory)
    for text in [*written, *found.notes, *mistakes, *([f"type: {line}"] if found.is_ready and not mistakes else [])]:
        print(text)


def _mistakes(found: Conversion, directory: Path) -> list[str]:
    """Return what has to be done before the first start, such as a file that must be there."""
    try:
        if found.config:
            read_checked_runs(yaml.safe_load(config_text(found.config)), directory)
    except ConfigError as error:
        return ["before the first start:", *(f"    {line}" for line in error.mistakes)]
    return []


def _exec_written(found: Conversion, directory: Path) -> list[str]:
    """Write the script with `unbroken exec`; return what was done."""
    path = directory / found.exec_name
    if path.exists() and path.read_text(errors="replace") != found.exec_text:
        return [f"{path}: yours, left as it is; the script would be:", found.exec_text]
    path.write_text(found.exec_text)
    return [f"{path}: written: {found.script} with unbroken exec before its long command"]
