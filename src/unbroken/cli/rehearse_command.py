"""`unbroken rehearse`: whether a run really goes on after each way of ending, and what it leaves then."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unbroken.cli.import_export import configured
from unbroken.cli.say import Config, Directory, RunName, say
from unbroken.engines.found import engine_of, known_schemas
from unbroken.errors import ConfigError
from unbroken.rehearsal.play import Course
from unbroken.rehearsal.short_goal import with_goal
from unbroken.report.known import CONFIG
from unbroken.runs.rehearsal import FOLDER, Verdict

MINUTES = 2.0
MOST_FINDINGS = 10
_GOOD = (Verdict.IDENTICAL, Verdict.NOT_COMPARABLE)


def rehearse(
    run: RunName,
    goal: Annotated[float | None, typer.Option(help="A smaller goal than the run's, in its unit.")] = None,
    minutes: Annotated[float, typer.Option(help="How long one run, and the wait for a save, may take.")] = MINUTES,
    read_only: Annotated[
        list[Path] | None, typer.Option(help="What the program only reads: a link in each copy of the folder.")
    ] = None,
    directory: Directory = Path(),
    config: Config = CONFIG,
) -> None:
    """Tries on this machine whether a run goes on as if nothing had happened: whole, then in pieces with kills."""
    configured_run = configured(run, directory, config)
    if minutes <= 0:
        raise ConfigError([f"--minutes: found {minutes:g}, allowed: more than 0"])
    chosen = configured_run if goal is None else with_goal(configured_run, goal)
    engine = engine_of(chosen, directory)
    if wrong := [f"--goal {goal:g}: {text}" for _, text in engine.mistakes(chosen)] if goal is not None else []:
        raise ConfigError(wrong)
    keys = known_schemas().engines[chosen.engine].identity
    if outside := [str(path) for path in read_only or () if path.is_absolute() or not (directory / path).exists()]:
        raise ConfigError([f"--read-only: found {', '.join(outside)}, allowed: paths in {directory}"])
    shared = [str(path) for path in read_only or ()]
    course = Course(chosen, keys, engine, directory, minutes, lambda line: say(f"{run}: {line}"), shared)
    done = course.play()
    for line in [*done.findings[:MOST_FINDINGS], *filter(None, [done.progress_read])]:
        say(f"{run}: {line}")
    if len(done.findings) > MOST_FINDINGS:
        say(f"{run}: {len(done.findings) - MOST_FINDINGS} more findings in {directory / FOLDER / run}.json")
    for line in course.measures.lines(configured_run):
        say(f"{run}: {line}")
    say(f"{run}: {done.line()}")
    raise typer.Exit(0 if done.verdict in _GOOD else 1)
