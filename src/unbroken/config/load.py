"""The configuration: from what the user wrote to complete runs, or to all mistakes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from unbroken.config.checks import Checker
from unbroken.config.location import Branch, Entry, mapping
from unbroken.config.messages import NO_SUCH_FILE
from unbroken.config.schema import Schema, Schemas, SettingKey
from unbroken.config.segment_length import lengths
from unbroken.config.segment_length import mistakes as length_mistakes
from unbroken.config.table import Table, read_table
from unbroken.config.tasks import mistakes as task_mistakes
from unbroken.config.tasks import settled_enter
from unbroken.errors import AbsentFileError, ConfigError
from unbroken.runs.run import CopySettings, Run

_NO_RUNS = "runs: found none, allowed: one run or more; type one under `runs:` or name a table with `runs_table:`"


def no_mistakes(_entry: Entry, _run: Run, _base: Path) -> Iterator[str]:
    """For who does not ask the engines."""
    return iter(())


def read_runs(
    config: Mapping[str, object],
    book: Schemas,
    base: Path,
    own_mistakes: Callable[[Entry, Run, Path], Iterator[str]] = no_mistakes,
) -> tuple[Run, ...]:
    """The runs of a configuration in the order of the file, every key filled; ConfigError with all mistakes.

    Paths are looked up relative to `base` and stay as written.  `own_mistakes` is what the engine of a run finds in its
    settings, a line each (`engines.found`); nothing here knows an engine.
    """
    defaults = mapping(config.get("defaults"))
    file = config.get("runs_table")
    table = read_table(file, base, book, defaults.get("engine")) if isinstance(file, str) and file else Table()
    written = [Entry(name, values, Branch(("runs", name))) for name, values in mapping(config.get("runs")).items()]
    entries = [entry for key in config for entry in {"runs": written, "runs_table": table.entries}.get(key, ())]
    checker = Checker(book, base, defaults, entries)
    mistakes = list(dict.fromkeys(checker.mistakes(config, table)))
    if mistakes and all(NO_SUCH_FILE in line for line in mistakes):
        raise AbsentFileError(mistakes)
    if mistakes or not entries:
        raise ConfigError(mistakes or [_NO_RUNS])
    runs = tuple(_complete(entry, defaults, book) for entry in entries)
    each = list(zip(runs, entries, strict=True))
    checks = task_mistakes, length_mistakes
    found = [line for run, entry in each for check in checks for line in check(run, entry.spot)]
    if found:
        raise ConfigError(found)
    if own := [line for entry, run in zip(entries, runs, strict=True) for line in own_mistakes(entry, run, base)]:
        raise (AbsentFileError if all(NO_SUCH_FILE in line for line in own) else ConfigError)(own)
    return runs


def _complete(entry: Entry, defaults: Mapping[str, object], book: Schemas) -> Run:
    """The run with what the schema, then the defaults, then the run itself say; all of it is known to be good."""
    values: dict[str, Any] = _settled(book.run, defaults, entry.values)
    engine = book.engines[values["engine"]]
    values["settings"] = _settled(engine, mapping(defaults.get("settings")), entry.settings)
    if values["gpus"] is None:
        values["gpus"] = int(values["place"] == "gpu")
    values["copies"] = _copies(book.run, values["copies"])
    values["segment_minutes"], values["least_minutes"] = lengths(book.run, values["segment_minutes"])
    values["enter"] = settled_enter(values["enter"], values["tasks"], values["threads"])
    is_counted = "goal" in engine.keys and bool(engine.keys["goal"].schema.get("is_counted"))
    goals = _metric_goals(engine, values["settings"])
    return Run(name=str(entry.name), metric_goals=goals, has_counted_goal=is_counted, **values)


def _copies(schema: Schema, written: Mapping[str, Any] | None) -> CopySettings | None:
    """Return the `copies` of a run, with the defaults of the schema."""
    if written is None:
        return None
    parts = {name: SettingKey(name, part) for name, part in schema.keys["copies"].schema["properties"].items()}
    defaults = {name: part.schema["default"] for name, part in parts.items() if "default" in part.schema}
    settled: dict[str, Any] = {name: parts[name].settled(value) for name, value in {**defaults, **written}.items()}
    return CopySettings(**settled)


def _metric_goals(engine: Schema, settings: Mapping[str, object]) -> dict[str, float]:
    """Return the settings that are goals in one of the program's own metrics, as their schema says (`goal_metric`).

    Where no setting names a goal, the program's own file does: the schema says at which value of a metric it is reached
    (`goal_unset`).
    """
    schemas = {key.schema["goal_metric"]: (name, key.schema) for name, key in engine.keys.items() if _is_goal(key)}
    wanted = {metric: settings[name] for metric, (name, _) in schemas.items()}
    goals = {metric: value for metric, value in wanted.items() if isinstance(value, (int, float))}
    if goals or settings.get("goal") is not None:
        return goals
    return {metric: schema["goal_unset"] for metric, (_, schema) in schemas.items() if "goal_unset" in schema}


def _is_goal(key: SettingKey) -> bool:
    return "goal_metric" in key.schema


def _settled(schema: Schema, *layers: Mapping[Any, object]) -> dict[str, object]:
    values = dict(schema.defaults)
    for layer in layers:
        values.update((name, schema.keys[name].settled(value)) for name, value in layer.items())
    return values
