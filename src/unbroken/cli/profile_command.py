"""`unbroken profile`: brings a profile to a workflow of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unbroken.cli.install_profile import Installed, install, link, profile_folder, user_folder
from unbroken.errors import ConfigError
from unbroken.plan.slurm_jobs import SITE

To = Annotated[Path | None, typer.Option("--to", help="The folder that becomes the profile; else profiles/NAME.")]
User = Annotated[bool, typer.Option("--user", help="For all your workflows: into ~/.config/snakemake.")]


def profile(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as slurm.")], to: To = None, *, user: User = False
) -> None:
    """Install a profile here (or --to FOLDER, or for --user), filled from sinfo; never overwrites what you edited."""
    profile_folder(name)
    if to is not None and user:
        raise ConfigError(["profile: found --to and --user; type one of them"])
    done = install(name, to or (user_folder(name) if user else Path("profiles") / name))
    linked = None if to or user or name == "default" else link(name, done.folder, Path())
    for line in _lines(done):
        print(line)
    if linked:
        print(f"{linked}: a link to {done.folder}, by which snakemake finds it")
    if name != "default":
        print(f"type: snakemake --profile {to or name}")


def _lines(done: Installed) -> list[str]:
    lines = [f"{path}: written" for path in done.written]
    lines += [f"{path}: is there already" for path in done.same]
    lines += [f"{path}: yours, left as it is; compare: diff {path} {new}" for path, new in done.kept]
    if done.why_unfilled:
        lines.append(f"{done.why_unfilled}, so the partitions' names could not be filled in; edit {done.folder / SITE}")
    return lines
