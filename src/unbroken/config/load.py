"""The configuration: from what the user wrote to complete runs, or to all mistakes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unbroken.config.checks import Checker
from unbroken.config.location import Branch, Entry, Spot, mapping
from unbroken.config.schema import Schema, Schemas
from unbroken.config.table import Table, read_table
from unbroken.config.tasks import settled_enter, task_mistakes
from unbroken.errors import ConfigError, Mistake, config_error
from unbroken.store.run import CopySettings, RunSpec

_NO_RUNS = "runs: found none, allowed: one run or more; type one under `runs:` or name a table with `runs_table:`"
OwnMistakes = Callable[[Entry, RunSpec, Path], Iterator[Mistake]]


def no_mistakes(_entry: Entry, _run: RunSpec, _base: Path) -> Iterator[Mistake]:
    """Yield nothing, for callers that do not ask the engines."""
    return iter(())


def read_runs(
    config: Mapping[str, object], schemas: Schemas, base: Path, own_mistakes: OwnMistakes = no_mistakes
) -> tuple[RunSpec, ...]:
    """Return the runs of a configuration in the file's order, every key filled; raise ConfigError with all mistakes.

    Paths are looked up relative to `base` and stay as written.  `own_mistakes` is what the engine of a run finds in its
    settings (`engines.found`); nothing here knows an engine.
    """
    defaults = mapping(config.get("defaults"))
    file = config.get("runs_table")
    table = read_table(file, base, schemas, defaults.get("engine")) if isinstance(file, str) and file else Table()
    written = [Entry(name, values, Branch(("runs", name))) for name, values in mapping(config.get("runs")).items()]
    entries = [entry for key in config for entry in {"runs": written, "runs_table": table.entries}.get(key, ())]
    entries = [_expanded(entry, defaults, schemas, base) for entry in entries]
    checker = Checker(schemas, base, defaults, entries)
    if mistakes := list(dict.fromkeys(checker.mistakes(config, table))):
        raise config_error(mistakes)
    if not entries:
        raise ConfigError([_NO_RUNS])
    runs = tuple(_complete(entry, defaults, schemas) for entry in entries)
    _check_complete(entries, runs, base, own_mistakes)
    return runs


def read_run(entry: Entry, schemas: Schemas, base: Path, own_mistakes: OwnMistakes) -> RunSpec:
    """Return one run that no configuration holds, checked like the others."""
    entry = _expanded(entry, {}, schemas, base)
    if mistakes := list(Checker(schemas, base, {}, [entry]).of_entries([entry])):
        raise config_error(mistakes)
    run = _complete(entry, {}, schemas)
    _check_complete([entry], [run], base, own_mistakes)
    return run


def _expanded(entry: Entry, defaults: Mapping[str, object], schemas: Schemas, base: Path) -> Entry:
    engine = schemas.engines.get(str(entry.values.get("engine", defaults.get("engine"))))
    return schemas.with_preset(entry, defaults, base) if engine is not None and "preset" in engine.keys else entry


def _check_complete(entries: Sequence[Entry], runs: Sequence[RunSpec], base: Path, own_mistakes: OwnMistakes) -> None:
    pairs = list(zip(entries, runs, strict=True))
    for checks in (_own_checks, own_mistakes):
        if mistakes := [mistake for entry, run in pairs for mistake in checks(entry, run, base)]:
            raise config_error(mistakes)


def _own_checks(entry: Entry, run: RunSpec, _base: Path) -> Iterator[Mistake]:
    yield from task_mistakes(run, entry.spot)
    yield from _length_mistakes(run, entry.spot)


def _length_mistakes(run: RunSpec, spot: Spot) -> Iterator[Mistake]:
    if run.least_minutes is not None and run.least_minutes > run.segment_minutes:
        found = f"found {run.least_minutes:g}, but at_most is {run.segment_minutes:g}"
        yield Mistake(found, f"at most {run.segment_minutes:g}", where=spot.at("segment_minutes", "at_least"))


def _complete(entry: Entry, defaults: Mapping[str, object], schemas: Schemas) -> RunSpec:
    """Return the run with what the schema, then the defaults, then the run itself say; all of it is good."""
    values: dict[str, Any] = schemas.run.settled(defaults, entry.values)
    engine = schemas.engines[values["engine"]]
    values["settings"] = engine.settled(mapping(defaults.get("settings")), entry.settings)
    if values["gpus"] is None:
        values["gpus"] = int(values["place"] == "gpu")
    if values["copies"] is not None:
        values["copies"] = CopySettings(**values["copies"])
    if isinstance(length := values["segment_minutes"], Mapping):
        values["segment_minutes"], values["least_minutes"] = length["at_most"], length["at_least"]
    values["enter"] = settled_enter(values["enter"], values["tasks"], values["threads"])
    is_counted = "goal" in engine.keys and bool(engine.keys["goal"].schema.get("is_counted"))
    goals = _metric_goals(engine, values["settings"])
    own = {"name": str(entry.name), "metric_goals": goals, "has_counted_goal": is_counted}
    return RunSpec.of({**values, **own})


def _metric_goals(engine: Schema, settings: Mapping[str, object]) -> dict[str, float]:
    """Return the settings that are goals in one of the program's own metrics, as their schema says (`goal_metric`).

    Where no setting names a goal, the program's own file does: the schema says at which value of a metric it is reached
    (`goal_unset`).
    """
    keys = {key.schema["goal_metric"]: key for key in engine.keys.values() if "goal_metric" in key.schema}
    wanted = {metric: settings[key.name] for metric, key in keys.items()}
    goals = {metric: value for metric, value in wanted.items() if isinstance(value, (int, float))}
    if goals or settings.get("goal") is not None:
        return goals
    return {metric: key.schema["goal_unset"] for metric, key in keys.items() if "goal_unset" in key.schema}
