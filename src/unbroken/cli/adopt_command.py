"""`unbroken adopt`: what already ran elsewhere becomes a run's first checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unbroken.cli.say import HERE, Config, Directory, RunName, say
from unbroken.config.found import unknown_run
from unbroken.engines.foreign import Foreign
from unbroken.engines.found import engine_of, known_schemas
from unbroken.errors import ConfigError
from unbroken.report.known import CONFIG, runs_of
from unbroken.runs.checkpoint import Checkpoint, describe_done
from unbroken.runs.run import Run
from unbroken.segment.adopt import adopt
from unbroken.segment.job import Job


def adopt_command(
    run: RunName,
    source: Annotated[Path, typer.Option("--from", help="The folder, or the checkpoint, that the program left.")],
    done: Annotated[
        float | None, typer.Option(help="How far it is, in the unit of the goal, where the files do not say it.")
    ] = None,
    directory: Directory = HERE,
    config: Config = CONFIG,
) -> None:
    """Makes what already ran elsewhere the first checkpoint of a run that has none; copies, and changes nothing."""
    chosen = configured(run, directory, config)
    job = Job(chosen, known_schemas().engines[chosen.engine].identity, 0, 1, directory)
    checkpoint = adopt(job, engine_of(chosen, directory), Foreign(source, done), lambda line: say(f"{run}: {line}"))
    for line in told(run, checkpoint):
        say(line)


def configured(run: str, directory: Path, config: Path) -> Run:
    """The run of that name; ConfigError if the configuration has none."""
    known = {each.name: each for each in runs_of(directory, config, must_exist=True)}
    if run not in known:
        raise ConfigError([unknown_run(run, known)])
    return known[run]


def told(run: str, checkpoint: Checkpoint) -> list[str]:
    """What stands in the passport."""
    adopted = checkpoint.passport.adopted
    lines = [f"{run}: adopted {checkpoint.name} ({describe_done(checkpoint)})"]
    if adopted is not None:
        kinds = {"checked": adopted.checked, "not checked": adopted.not_checked, "lost": adopted.lost}
        lines += [f"  {kind}: {line}" for kind, found in kinds.items() for line in found]
    return [*lines, f"{run}: it goes on from there with: snakemake"]
