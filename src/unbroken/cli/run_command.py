"""`unbroken run`, `unbroken exec`, and `unbroken launcher`: start the installed workflow, or a program of your own."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path, PurePath
from typing import Annotated

import typer

from unbroken.cli.become_snakemake import become_snakemake
from unbroken.cli.install_profile import user_folder
from unbroken.cli.say import HERE, Directory, RunNames, say
from unbroken.config.package_files import install_line, snakefile
from unbroken.errors import ConfigError
from unbroken.exec.main import main as exec_main
from unbroken.plan.elsewhere import own_snakefile
from unbroken.plan.plan import Plan
from unbroken.report.known import CONFIG, no_config, runs_of

_SLURM = "slurm"
# The same profile with and without a driver, so that a cluster has one site.yaml. Snakemake wants the second word with
# the first: no driver is left that would remove temporary files, and unbroken has none.
DETACHED = ("--immediate-submit", "--notemp")

_MARK = "# Made by: unbroken launcher"
PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

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
    targets = Plan(tuple(runs_of(directory, CONFIG, must_exist=True)), directory).targets(*runs) if runs else []
    own = DETACHED if detached else ()
    words, typed = command_for(targets, directory, chosen, [*own, *(context.obj or [])])
    become_snakemake(words, typed)


def exec_command(context: typer.Context) -> None:
    """Run a program of yours so that it resumes where it was; see: unbroken exec --help."""
    raise SystemExit(exec_main(context.args))  # the command line begins elsewhere (begin.py), without typer


def launcher() -> None:
    """Write ~/.local/bin/unbroken, for rules whose conda environment hides this one."""
    path = Path.home() / ".local/bin/unbroken"
    text = f'#!/bin/sh\n{_MARK}\nexec {shlex.quote(sys.executable)} -m unbroken "$@"\n'
    if os.path.lexists(path) and not (path.is_file() and _MARK in path.read_text(errors="replace")):
        raise ConfigError([f"{path}: is there, and not made by unbroken launcher; move it away, then type it again"])
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(".unbroken.draft")
    draft.write_text(text)
    draft.chmod(0o755)
    os.replace(draft, path)
    is_first = shutil.which("unbroken") == str(path)
    found = "" if is_first else f"; in PATH another one, or none, comes first: {shutil.which('unbroken') or 'none'}"
    say(f"{path}: starts {sys.executable} -m unbroken{found}")


# --- the line of Snakemake ---


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
