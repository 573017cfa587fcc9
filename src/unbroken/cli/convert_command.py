"""`unbroken convert`: a site's Slurm script as a run in a configuration; the script is read and never run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
import yaml

from unbroken.cli.init_command import begin, partitions_here
from unbroken.cli.say import HERE, directory_option
from unbroken.config.found import absent
from unbroken.convert.bash import Script
from unbroken.convert.config_text import config_text
from unbroken.convert.conversion import Conversion, convert, remarks_text
from unbroken.engines.found import read_checked_runs
from unbroken.errors import ConfigError

ScriptFile = Annotated[Path, typer.Argument(metavar="SCRIPT", help="What you give to sbatch, or what submits it.")]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="ARGUMENTS", help="Arguments of the script, as behind its name for sbatch."),
]
Name = Annotated[str, typer.Option("--name", help="The run's name; --job-name of the script, else its own name.")]
Directory = Annotated[Path, directory_option("The folder in which the script is submitted.")]
Slurm = Annotated[bool, typer.Option("--slurm", help="With the profile for Slurm; done by itself where sinfo is.")]
Shown = Annotated[bool, typer.Option("--print", help="Print the configuration alone; write nothing.")]


def convert_script(
    script: ScriptFile,
    arguments: Arguments = None,
    name: Name = "",
    directory: Directory = HERE,
    slurm: Slurm = False,
    is_printed: Shown = False,
) -> None:
    """Makes a run of a Slurm script: says of each line of the config where it comes from; overwrites nothing."""
    if not script.exists():
        raise ConfigError([f"convert: {absent(str(script), Path())}"])
    found = convert(Script.read(script, directory), arguments or [], name)
    if is_printed:
        print(config_text(found), end="")
        return
    partitions = partitions_here()
    is_on_slurm = slurm or bool(partitions)
    for line in begin(found.run, lambda is_in: config_text(found, is_in), directory, is_on_slurm, partitions):
        print(line)
    for line in _told(found, directory):
        print(line)
    at = [] if directory == HERE else ["-d", str(directory)]
    print(f"type: {shlex.join(['unbroken', 'run', *at, *(['--slurm'] if is_on_slurm else [])])}")


def _told(found: Conversion, directory: Path) -> Iterator[str]:
    """What became of the lines that are no line of the config, what is asked, and what would be refused."""
    for title, remarks in (
        ("left out, because unbroken does it", found.dropped),
        ("not carried over", found.lost),
        ("for you to say, at the lines with `# ?`", found.asked),
    ):
        if remarks:
            yield f"{title}:"
            yield from (f"    {line}" for line in remarks_text(remarks, found.script))
    try:
        read_checked_runs(yaml.safe_load(config_text(found)), directory)
    except ConfigError as error:
        yield "to be mended before the first start:"
        yield from (f"    {line}" for line in error.mistakes)
