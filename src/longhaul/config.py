"""The configuration: from what the user wrote to complete runs, or to all mistakes at once."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longhaul.config_checks import Checker
from longhaul.entry import Branch, Entry, mapping
from longhaul.errors import ConfigError
from longhaul.identity import IdentityKeys
from longhaul.run import Run
from longhaul.schema import Schema, Schemas, load_schemas
from longhaul.table import Table, read_table

__all__ = ["Run", "engine_identity", "read_runs", "schema_engines"]

_NO_RUNS = "runs: found none, allowed: one run or more; type one under `runs:` or name a table with `runs_table:`"


def read_runs(config: Mapping[str, object], schemas: Path, base: Path) -> tuple[Run, ...]:
    """The runs of a configuration in the order of the file, every key filled; ConfigError with all mistakes.

    Paths are looked up relative to `base` and stay as written.
    """
    book = load_schemas(schemas)
    defaults = mapping(config.get("defaults"))
    file = config.get("runs_table")
    table = read_table(file, base, book, defaults.get("engine")) if isinstance(file, str) and file else Table()
    written = [Entry(name, values, Branch(("runs", name))) for name, values in mapping(config.get("runs")).items()]
    entries = [entry for key in config for entry in {"runs": written, "runs_table": table.entries}.get(key, ())]
    checker = Checker(book, base, defaults, entries)
    mistakes = list(dict.fromkeys(checker.mistakes(config, table)))
    if mistakes or not entries:
        raise ConfigError(mistakes or [_NO_RUNS])
    return tuple(_complete(entry, defaults, book) for entry in entries)


def schema_engines(schemas: Path) -> tuple[str, ...]:
    """The engines that there are: those with a schema."""
    return tuple(load_schemas(schemas).engines)


@functools.cache
def engine_identity(schemas: Path, engine: str) -> IdentityKeys:
    """Which keys are part of the identity of an engine's runs, as its schema says."""
    schema = load_schemas(schemas).engines[engine]
    return IdentityKeys(
        value_keys=schema.keys_of_identity("value"),
        content_keys=schema.keys_of_identity("content"),
        run_keys=schema.identity_run_keys,
    )


def _complete(entry: Entry, defaults: Mapping[str, object], book: Schemas) -> Run:
    """The run with what the schema, then the defaults, then the run itself say; all of it is known to be good."""
    values: dict[str, Any] = _settled(book.run, defaults, entry.values)
    engine = book.engines[values["engine"]]
    values["settings"] = _settled(engine, mapping(defaults.get("settings")), entry.settings)
    return Run(name=str(entry.name), **values)


def _settled(schema: Schema, *layers: Mapping[Any, object]) -> dict[str, object]:
    values = dict(schema.defaults)
    for layer in layers:
        values.update((name, schema.keys[name].settled(value)) for name, value in layer.items())
    return values
