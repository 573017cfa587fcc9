"""`unbroken run`: the installed workflow in any folder that has a config, and the equivalent `snakemake` line."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path, PurePath
from typing import Annotated

import typer

from unbroken.cli.become_snakemake import become_snakemake
from unbroken.cli.install_profile import user_folder
from unbroken.cli.say import HERE, Directory, RunNames
from unbroken.config.package_files import install_line, snakefile
from unbroken.errors import ConfigError
from unbroken.plan.elsewhere import own_snakefile
from unbroken.plan.plan import Plan
from unbroken.report.known import CONFIG, no_config, runs_of
from unbroken.store.run import RunSpec

_SLURM = "slurm"
# The same profile with and without a driver, so that a cluster has one site.yaml. Snakemake wants the second word with
# the first: no driver is left that would remove temporary files, and unbroken has none.
DETACHED = ("--immediate-submit", "--notemp")

Slurm = Annotated[bool, typer.Option("--slurm", help="As Slurm jobs; waits for them. Stands for --profile slurm.")]
Detached = Annotated[bool, typer.Option("--detached", help="The same jobs; returns once they are submitted.")]
Profile = Annotated[str | None, typer.Option("--profile", help="A profile of yours, by name or folder.")]


def run(
    context: typer.Context,
    runs: RunNames = None,
    directory: Directory = HERE,
    *,
    slurm: Slurm = False,
    detached: Detached = False,
    profile: Profile = None,
) -> None:
    """Start Snakemake with the installed workflow; again after any failure. Arguments after -- go to Snakemake."""
    chosen = chosen_profile(slurm=slurm, detached=detached, profile=profile)
    targets = targets_of(tuple(runs_of(directory, CONFIG, must_exist=True)), runs, directory) if runs else []
    own = DETACHED if detached else ()
    words, typed = command_for(targets, directory, chosen, [*own, *(context.obj or [])])
    become_snakemake(words, typed)


def command_for(
    targets: Sequence[str], directory: Path, profile: str | None, words: Sequence[str]
) -> tuple[list[str], str]:
    """Return Snakemake's arguments, and the line to type; raise ConfigError if the folder or profile lacks a file."""
    if importlib.util.find_spec("snakemake") is None:
        raise ConfigError([f"snakemake: not installed in this Python; type: {install_line(extra='workflow')}"])
    found = ["--logger", "unbroken"] if "--logger" not in words else []
    found += ["--snakefile", str(_snakefile(directory))]
    found += ["--directory", str(directory)] if directory != Path() else []
    found += ["--profile", _folder_of_profile(profile, directory)] if profile else []
    found += words
    typed = shlex.join(found) + (f" -- {' '.join(_braced(targets))}" if targets else "")
    return [*found, *(["--", *targets] if targets else [])], f"snakemake {typed}"


def chosen_profile(*, slurm: bool, detached: bool, profile: str | None) -> str | None:
    """Return the profile that was chosen, None if none was; raise ConfigError if more than one was."""
    given = {"--slurm": slurm, "--detached": detached, "--profile": profile is not None}
    asked = [name for name, is_given in given.items() if is_given]
    if len(asked) > 1:
        raise ConfigError([f"run: found {' and '.join(asked)}; type one of them"])
    return _SLURM if slurm or detached else profile


def targets_of(runs: Sequence[RunSpec], names: Sequence[str], directory: Path) -> list[str]:
    """Return Snakemake's targets for these runs; raise ConfigError for an unknown name."""
    return Plan(tuple(runs), directory).targets(*names)


def _snakefile(directory: Path) -> Path:
    if (own := own_snakefile(directory)) is not None:
        return own
    if not (directory / CONFIG).is_file():
        raise no_config(directory)
    return snakefile()


def _folder_of_profile(name: str, directory: Path) -> str:
    """Return a profile folder in `directory` if there is one, else the name, which Snakemake looks up itself."""
    own = directory / "profiles" / name
    for folder in (directory / name, own):
        if folder.is_dir():
            return str(folder)
    if name == _SLURM and not user_folder(name).is_dir():
        raise ConfigError([f"{own}: not found; type: unbroken profile {name} --to {own}, then fill in its site.yaml"])
    return name


def _braced(targets: Sequence[str]) -> Iterator[str]:
    """Yield the targets, the records of a run as one: `results/demo/segments/{001..600}.json`."""
    for folder, group in groupby(map(PurePath, targets), lambda target: target.parent):
        first, *more = group
        row = f"{shlex.quote(str(folder))}/{{{first.stem}..{more[-1].stem}}}{first.suffix}" if more else ""
        yield row or shlex.quote(str(first))
