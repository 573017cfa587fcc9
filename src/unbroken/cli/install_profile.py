"""`unbroken profile`: copy a profile to a workflow of one's own, with the names of this cluster filled in."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
import yaml

from unbroken.config.found import near
from unbroken.config.messages import listed
from unbroken.config.package_files import root_folder, workflow_folder
from unbroken.errors import ConfigError
from unbroken.plan.slurm_jobs import PARTITIONS, SITE
from unbroken.slurm.partitions import Partition, ask_partitions

To = Annotated[Path | None, typer.Option("--to", help="The folder that becomes the profile; else profiles/NAME.")]
User = Annotated[bool, typer.Option("--user", help="For all your workflows: into ~/.config/snakemake.")]
_PLACES = "  places:\n"
# What a clone holds before its cluster's partitions are named.
_UNFILLED_PLACES = "    short:\n      partition: short\n    gpu:\n      partition: gpu\n"
_UNFILLED_PARTITIONS = "\npartitions: {}\n"


def profile(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as slurm.")], to: To = None, *, user: User = False
) -> None:
    """Install a profile here (or --to FOLDER, or for --user), filled from sinfo; never overwrites what you edited."""
    profile_folder(name)
    if to is not None and user:
        raise ConfigError(["profile: found --to and --user; type one of them"])
    folder = to or (user_folder(name) if user else Path("profiles") / name)
    lines, todo = install(name, folder)
    for line in [*lines, *filter(None, [todo])]:
        print(line)
    if not (to or user or name == "default") and (linked := link(name, folder, Path())):
        print(f"{linked}: a link to {folder}, by which snakemake finds it")
    if name != "default":
        print(f"type: snakemake --profile {to or name}")


def profile_folder(name: str) -> Path:
    """Return the folder of a profile that comes with unbroken; else raise ConfigError with the known names."""
    # Next to the workflow in a clone, inside it in an installed package, where Snakemake looks for them.
    root = next(base / "profiles" for base in (root_folder(), workflow_folder()) if (base / "profiles").is_dir())
    known = sorted(path.parent.name for path in root.glob("*/profile.yaml"))
    if name not in known:
        guess = near(name, known)
        raise ConfigError(
            [f"profile: found '{name}', allowed: {listed(known)}" + (f"; did you mean `{guess}`?" if guess else "")]
        )
    return root / name


def user_folder(name: str) -> Path:
    """Return where `snakemake --profile NAME` looks for a user's profiles in any working directory."""
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "snakemake" / name


def install(name: str, folder: Path) -> tuple[list[str], str]:
    """Copy a profile into `folder`; keep a file that was edited there, and write the new one next to it.

    Return a line for each file, and what its user has to fill in, if anything.
    """
    shipped = _shipped(profile_folder(name))
    texts, why_unfilled = _filled(shipped)
    if folder.exists() and not folder.is_dir():
        raise ConfigError([f"{folder}: is a file, and the profile needs a folder; type --to and another name"])
    folder.mkdir(parents=True, exist_ok=True)
    lines = list[str]()
    for file, text in texts.items():
        path = folder / file
        if not path.exists() or (text != path.read_text() and _is_unfilled(path.read_text(), shipped[file])):
            path.write_text(text)
            lines.append(f"{path}: written")
        elif path.read_text() == text:
            lines.append(f"{path}: is there already")
        else:
            new = path.with_name(f"{file}.new")
            new.write_text(text)
            lines.append(f"{path}: yours, left as it is; compare: diff {path} {new}")
    todo = f"{why_unfilled}, so the partitions' names could not be filled in; edit {folder / SITE}"
    return lines, todo if why_unfilled else ""


def link(name: str, folder: Path, base: Path) -> Path | None:
    """Make a link NAME at the top of a workflow, so that `--profile NAME` is found; return None if NAME exists."""
    path = base / name
    if path.exists() or path.is_symlink():
        return None
    path.symlink_to(os.path.relpath(folder, base), target_is_directory=True)
    return path


def _shipped(source: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(source.iterdir()) if path.suffix == ".yaml"}


def _filled(shipped: dict[str, str]) -> tuple[dict[str, str], str]:
    """Return the files of a profile, filled in from sinfo, and the reason if they could not be."""
    if SITE not in shipped:
        return shipped, ""
    try:
        partitions = [partition for partition in ask_partitions().values() if partition.kinds]
    except ConfigError as error:
        return shipped, re.split("[,;]", str(error))[0]
    site = shipped[SITE].partition(_PLACES)[0] + "\n".join(_places(partitions)) + "\n"
    return {**shipped, SITE: site, PARTITIONS: "\n".join(_limits(partitions)) + "\n"}, ""


def _is_unfilled(text: str, shipped: str) -> bool:
    """Return True for a file as it comes with unbroken, which neither sinfo nor a user has filled in yet.

    In a clone the shipped file is the one in use, so its places decide; edits above them are kept.
    """
    return text == shipped and text.endswith((_PLACES + _UNFILLED_PLACES, _UNFILLED_PARTITIONS))


def _places(partitions: list[Partition]) -> Iterator[str]:
    yield _PLACES.rstrip()
    yield "    # The partitions of this cluster, as sinfo told them:"
    yield from (f"    #   {_described(partition)}" for partition in partitions)
    yield from _place("short", partition_of("short", partitions), "of the cluster's partitions none is the default one")
    yield from _place("gpu", partition_of("gpu", partitions), "none of the cluster's partitions has a GPU")


def _place(name: str, partition: Partition | None, why_none: str) -> Iterator[str]:
    yield f"    {name}:"
    yield f"      partition: {_yaml(partition.name)}" if partition else f"      partition: null  # {why_none}"


def partition_of(place: str, partitions: list[Partition]) -> Partition | None:
    """Return the default one for `short`; for `gpu` the one with most GPUs, first of those with GPUs in all nodes."""
    if place == "short":
        return next((partition for partition in partitions if partition.is_default), None)
    able = [partition for partition in partitions if partition.gpus()]
    return max(able, key=lambda each: (all(kind.gpus for kind in each.kinds), _all_gpus(each)), default=None)


def _all_gpus(partition: Partition) -> int:
    return sum(kind.count * kind.gpu_count() for kind in partition.kinds)


def _described(partition: Partition) -> str:
    minutes = partition.limit_minutes
    limit = "no time limit" if math.isinf(minutes) else f"at most {minutes:.10g} minutes"
    types = f" ({', '.join(name for name in partition.gpu_types if name)})" if any(partition.gpu_types) else ""
    gpus = f", {partition.gpus()} GPUs{types}" if partition.gpus() else ""
    nodes = f"nodes: {partition.node_count}, of up to {partition.cpus} cores, {partition.memory_mb} MB{gpus}"
    return f"{partition.name}{' (the default)' if partition.is_default else ''}: {limit}; {nodes}"


def _limits(partitions: list[Partition]) -> Iterator[str]:
    yield "# The partitions, as sinfo told them, that Snakemake's Slurm plugin may choose from, for a place without a"
    yield "# partition in site.yaml; remove those that you may not use. Keys for more limits:"
    yield "# https://github.com/snakemake/snakemake-executor-plugin-slurm"
    yield "partitions:"
    for partition in partitions:
        yield f"  {_yaml(partition.name)}:"
        yield from (f"    {key}: {_yaml(value)}" for key, value in _limits_of(partition).items())


def _limits_of(partition: Partition) -> dict[str, object]:
    found: dict[str, object] = (
        {} if math.isinf(partition.limit_minutes) else {"max_runtime": math.floor(partition.limit_minutes)}
    )
    found |= {"max_mem_mb": partition.memory_mb, "max_threads": partition.cpus, "max_nodes": partition.node_count}
    if partition.gpus():
        found["max_gpu"] = partition.gpus() * partition.node_count
        found |= {"available_gpu_models": models} if (models := [name for name in partition.gpu_types if name]) else {}
    return found


def _yaml(value: object) -> str:
    """Return the value on one line, quoted where YAML would read something else."""
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n...\n").strip()
