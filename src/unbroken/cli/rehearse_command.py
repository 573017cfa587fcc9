"""`unbroken rehearse`: try on this machine whether a run really resumes, and what it leaves then."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unbroken.cli.import_export import configured
from unbroken.cli.say import Config, Directory, RunName, say
from unbroken.engines.found import engine_of, known_schemas
from unbroken.errors import ConfigError
from unbroken.presets.runs import smaller_goal
from unbroken.rehearsal.rehearse import Rehearser
from unbroken.rehearsal.whole import with_goal
from unbroken.report.known import CONFIG
from unbroken.store.rehearsal import FOLDER, Verdict
from unbroken.system.log import lines_to

MINUTES = 2.0
MOST_FINDINGS = 10

_GOOD = (Verdict.IDENTICAL, Verdict.NOT_COMPARABLE)


def rehearse(
    run: RunName,
    goal: Annotated[float | None, typer.Option(help="A smaller goal than the run's, in its unit.")] = None,
    minutes: Annotated[float, typer.Option(help="How long one run, and the wait for a save, may take.")] = MINUTES,
    *,
    read_only: Annotated[
        list[Path] | None, typer.Option(help="What the program only reads: a link in each copy of the folder.")
    ] = None,
    directory: Directory = Path(),
    config: Config = CONFIG,
) -> None:
    """Try on this machine whether a run really resumes: whole, then in pieces with kills."""
    configured_run = configured(run, directory, config)
    goal = goal if goal is not None else smaller_goal(configured_run, directory)
    chosen = configured_run if goal is None else with_goal(configured_run, goal)
    engine, shared = engine_of(chosen, directory), list(map(str, read_only or ()))
    wrong = [f"--goal {goal:g}: {text}" for _, text in engine.mistakes(chosen)] if goal is not None else []
    wrong += [] if minutes > 0 else [f"--minutes: found {minutes:g}, allowed: more than 0"]
    if outside := [name for name in shared if Path(name).is_absolute() or not (directory / name).exists()]:
        wrong.append(f"--read-only: found {', '.join(outside)}, allowed: paths in {directory}")
    if wrong:
        raise ConfigError(wrong)
    keys = known_schemas().engines[chosen.engine].identity
    with lines_to(lambda line: say(f"{run}: {line}")):
        done = Rehearser(chosen, keys, engine, directory, minutes, read_only=shared).rehearse()
    lines = [*done.findings[:MOST_FINDINGS], done.progress_read]
    if more := len(done.findings[MOST_FINDINGS:]):
        lines.insert(MOST_FINDINGS, f"{more} more findings in {directory / FOLDER / run}.json")
    for line in [*filter(None, lines), done.line()]:
        say(f"{run}: {line}")
    raise typer.Exit(0 if done.verdict in _GOOD else 1)
