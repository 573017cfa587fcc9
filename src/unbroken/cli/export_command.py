"""`unbroken export`: a plain folder from which a run's program goes on without unbroken."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unbroken.cli.adopt_command import configured
from unbroken.cli.say import HERE, Config, Directory, RunName, say
from unbroken.engines.export import SCRIPT
from unbroken.engines.found import engine_of, known_schemas
from unbroken.report.known import CONFIG
from unbroken.runs.checkpoint import describe_done
from unbroken.segment.export import README, export
from unbroken.segment.job import Job


def export_command(
    run: RunName,
    to: Annotated[Path | None, typer.Option("--to", help="The new folder; RUN-export here if none is named.")] = None,
    checkpoint: Annotated[str, typer.Option(help="The name or number of a checkpoint; the newest.")] = "",
    directory: Directory = HERE,
    config: Config = CONFIG,
) -> None:
    """Makes a plain folder from which the program goes on by itself, without unbroken; the run stays as it is."""
    chosen = configured(run, directory, config)
    target = to or Path(f"{run}-export")
    job = Job(chosen, known_schemas().engines[chosen.engine].identity, 0, 1, directory)
    found = export(job, engine_of(chosen, directory), target, checkpoint, lambda line: say(f"{run}: {line}"))
    say(f"{run}: exported {found.name} ({describe_done(found)}) to {target}; see {target / README}")
    say(f"{run}: it goes on there with: {target / SCRIPT}")
