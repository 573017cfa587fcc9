"""`unbroken import` and `unbroken export`: a run starts from other files, or continues without unbroken."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unbroken.cli.say import HERE, Config, Directory, RunName, say
from unbroken.config.found import unknown_run
from unbroken.engines.base import Engine
from unbroken.engines.exports import SCRIPT
from unbroken.engines.found import engine_of, known_schemas
from unbroken.engines.imports import ImportSource
from unbroken.errors import ConfigError
from unbroken.job.attempt import Job
from unbroken.job.import_export import README, export_run, import_run
from unbroken.report.known import CONFIG, runs_of
from unbroken.store.checkpoint import describe_done
from unbroken.store.run import RunSpec
from unbroken.system.log import lines_to


def import_command(
    run: RunName,
    source: Annotated[Path, typer.Option("--from", help="The folder, or the checkpoint, that the program left.")],
    done: Annotated[
        float | None, typer.Option(help="How far it is, in the unit of the goal, where the files do not say it.")
    ] = None,
    directory: Directory = HERE,
    config: Config = CONFIG,
) -> None:
    """Import what already ran elsewhere as the first checkpoint of a run; copies, and changes nothing."""
    job, engine = _job(configured(run, directory, config), directory)
    with lines_to(lambda line: say(f"{run}: {line}")):
        checkpoint = import_run(job, engine, ImportSource(source, done))
    say(f"{run}: imported {checkpoint.name} ({describe_done(checkpoint)})")
    if (imported := checkpoint.passport.imported) is not None:
        for line in [
            *(f"checked: {each}" for each in imported.checked),
            *(f"not checked: {each}" for each in imported.not_checked),
        ]:
            say(f"  {line}")
    say(f"{run}: to continue, type: snakemake")


def export_command(
    run: RunName,
    to: Annotated[Path | None, typer.Option("--to", help="The new folder; RUN-export here if none is named.")] = None,
    checkpoint: Annotated[str, typer.Option(help="The name or number of a checkpoint; the newest.")] = "",
    directory: Directory = HERE,
    config: Config = CONFIG,
) -> None:
    """Export a plain folder from which the program resumes by itself, without unbroken; the run stays as it is."""
    job, engine = _job(configured(run, directory, config), directory)
    target = to or Path(f"{run}-export")
    with lines_to(lambda line: say(f"{run}: {line}")):
        found = export_run(job, engine, target, checkpoint)
    say(f"{run}: exported {found.name} ({describe_done(found)}) to {target}; see {target / README}")
    say(f"{run}: to continue there, type: {target / SCRIPT}")


def configured(run: str, directory: Path, config: Path) -> RunSpec:
    """Return the run of that name; raise ConfigError if the configuration has none."""
    known = {each.name: each for each in runs_of(directory, config, must_exist=True)}
    if run not in known:
        raise ConfigError([unknown_run(run, known)])
    return known[run]


def _job(run: RunSpec, directory: Path) -> tuple[Job, Engine]:
    return Job(run, known_schemas().engines[run.engine].identity, 0, 1, directory), engine_of(run, directory)
