"""`unbroken init`: a first configuration for what lies in a folder; overwrites nothing."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
import yaml

from unbroken.cli.install_profile import install, link, partition_of
from unbroken.cli.say import directory_option
from unbroken.engines.found import found_engines, read_checked_runs
from unbroken.engines.starter import Starter, config_text
from unbroken.errors import ConfigError
from unbroken.plan.elsewhere import own_snakefile
from unbroken.report.known import CONFIG
from unbroken.slurm.client import has_command
from unbroken.slurm.partitions import Partition, ask_partitions

SNAKEFILE = """# The installed workflow of unbroken; what it computes stands in config/config.yaml.
from unbroken.config.package_files import workflow_folder

include: str(workflow_folder() / "Snakefile")

rule all:
    default_target: True
    input:
        rules.segments.input,
"""
MODULE = """from unbroken.config.package_files import workflow_folder

configfile: "config/config.yaml"

module unbroken:
    snakefile: str(workflow_folder() / "Snakefile")
    config: config["unbroken"]

use rule * from unbroken as unbroken_*

# and among the inputs of a rule of yours:  unbroken.plan.targets("{run}")
"""
_COMMENTS = {
    "segments": "# at most; a run that reaches its goal earlier is done",
    "segment_minutes": "# what one job gets",
    "save_minutes": "# at most so much work is lost by a kill",
    "place": "# on the cluster; profiles/slurm/site.yaml says which partition that is",
}
_EXAMPLES = {
    "command": "command -- ./simulate input.dat   # any program with restart files",
    "dmtcp": "dmtcp -- python3 simulate.py      # any process",
    "gromacs": "gromacs topol.tpr",
    "jax": "jax train.py",
    "tensorflow": "tensorflow train.py",
    "torch": "torch train.py",
    "toy": "toy                               # counts, to see a chain",
}
_DAY_MINUTES = 1440.0
HERE = Path()

Words = Annotated[
    list[str] | None, typer.Argument(metavar="ENGINE FILE", help="What to begin with, where there is a choice.")
]
Directory = Annotated[Path, directory_option("The folder to begin in.")]
Slurm = Annotated[bool, typer.Option("--slurm", help="With the profile for Slurm; done by itself where sinfo is.")]
Diff = Annotated[bool, typer.Option("--diff", help="Print the changes that a script needs, for patch; write nothing.")]


@dataclass(frozen=True)
class Choice:
    """Hold the engine and the starter of a new configuration."""

    engine: str
    starter: Starter


def choose(folder: Path, words: Sequence[str]) -> Choice:
    """Return the one way to begin; raise ConfigError with all ways and what to type if there is not exactly one."""
    engines = found_engines()
    named, rest = (words[0], words[1:]) if words[:1] and words[0] in engines else ("", words)
    found = [
        Choice(name, starter)
        for name, engine in engines.items()
        if not named or name == named
        for starter in engine.load(folder).starters(list(rest), is_named=bool(named))
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        what = f"{words[0]!r} is no engine, and nothing" if words else "nothing"
        raise ConfigError([f"init: {what} that an engine knows is in {folder.resolve()}; type one of:", *_ways()])
    lines = [f"    unbroken init {each.engine} {each.starter.named or each.starter.source}" for each in found]
    raise ConfigError([f"init: more than one thing to begin with is in {folder.resolve()}; type one of:", *lines])


def _ways() -> list[str]:
    return [f"    unbroken init {_EXAMPLES.get(name, name)}" for name in found_engines()]


def _run_lines(choice: Choice, place: str, minutes: float) -> Iterator[str]:
    yield f"  {choice.starter.run}:"
    keys = {"engine": choice.engine, "segments": "20", "segment_minutes": f"{minutes:.10g}"}
    keys |= {"save_minutes": f"{min(10, minutes / 4):.10g}", "threads": "1"}
    keys |= {"place": place} if place else {}
    for key, value in keys.items():
        yield f"    {f'{key}: {value}':<24}{_COMMENTS.get(key, '')}".rstrip()
    yield "    settings:"
    for line in choice.starter.settings:
        setting, mark, comment = line.partition("  # ")
        yield f"      {f'{setting:<21} # {comment}' if mark else line}"


def init(words: Words = None, directory: Directory = HERE, *, slurm: Slurm = False, diff: Diff = False) -> None:
    """Write a first configuration for what lies in the folder; overwrites nothing."""
    choice = choose(directory, words or [])
    if diff:
        sys.stdout.write(choice.starter.diff)
        if choice.starter.todo and not choice.starter.diff:
            raise ConfigError(list(choice.starter.todo))
        return
    partitions = partitions_here()
    is_on_slurm = slurm or bool(partitions)
    lines = list(_run_lines(choice, *_place(choice.starter, partitions)))
    for line in begin(choice.starter.run, lines, directory, is_on_slurm=is_on_slurm):
        print(line)
    for line in _todo(choice, directory, words or []):
        print(line)
    print(f"type: {run_line(directory, is_on_slurm=is_on_slurm)}")


def run_line(directory: Path, *, is_on_slurm: bool) -> str:
    """Return the command that starts what was written."""
    at = [] if directory == HERE else ["-d", str(directory)]
    return shlex.join(["unbroken", "run", *at, *(["--slurm"] if is_on_slurm else [])])


def partitions_here() -> list[Partition]:
    """Return the partitions of the cluster; none without Slurm, or if it does not answer."""
    try:
        return list(ask_partitions().values()) if has_command("sinfo") else []
    except ConfigError:
        return []


def begin(run: str, lines: Sequence[str], directory: Path, *, is_on_slurm: bool) -> Iterator[str]:
    """Write the missing files, the config with these lines of runs, and yield a line for each."""
    own = own_snakefile(directory)
    is_ours = own is None or own.read_text() == SNAKEFILE
    config, text = directory / CONFIG, config_text(lines, is_in_workflow=not is_ours)
    if config.exists():
        yield f"{config}: yours, left as it is; to add this run, put these lines into it:"
        yield text
    else:
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(text)
        yield f"{config}: written"
    if not is_ours:
        yield f"{own}: yours, left as it is; to run this in it, type: unbroken profile default, and add these lines:"
        yield MODULE.format(run=run)
        return
    if own is None:
        (directory / "Snakefile").write_text(SNAKEFILE)
        yield f"{directory / 'Snakefile'}: written"
    for name in ["default", *(["slurm"] if is_on_slurm else [])]:
        yield from _profile(name, directory)


def _place(starter: Starter, partitions: list[Partition]) -> tuple[str, float]:
    """Return a job's place, empty for the default, and its minutes: the partition's limit, one day at most."""
    if starter.minutes < 1:
        return "", starter.minutes
    place = "gpu" if starter.uses_gpu and partition_of("gpu", partitions) else ""
    partition = partition_of(place or "short", partitions)
    return place, min(_DAY_MINUTES, partition.limit_minutes) if partition else starter.minutes


def _profile(name: str, directory: Path) -> Iterator[str]:
    folder = directory / "profiles" / name
    if not folder.exists():
        _, todo = install(name, folder)
        yield f"{folder}: written{'' if name == 'default' or todo else ', with the partitions of sinfo'}"
        yield from filter(None, [todo])
    if name != "default":
        link(name, folder, directory)


def _todo(choice: Choice, directory: Path, words: Sequence[str]) -> Iterator[str]:
    """Yield what the user must do before the first segment can start."""
    starter = choice.starter
    if starter.diff:
        at = [] if directory == HERE else ["-d", str(directory)]
        init_line = shlex.join(["unbroken", "init", *words, *at, "--diff"])
        yield f"{starter.source} saves nothing that a later segment could resume from. It needs these changes:"
        yield ""
        yield starter.diff
        yield f"to make these changes, type: {init_line} | patch{''.join(f' {word}' for word in at)}"
    yield from starter.todo
    if starter.diff or starter.todo:
        return
    try:
        text = config_text(list(_run_lines(choice, "", starter.minutes)))
        read_checked_runs(yaml.safe_load(text), directory)
    except ConfigError as error:
        yield from str(error).splitlines()
