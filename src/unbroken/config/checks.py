"""The mistakes in the runs of a configuration, in the order of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from unbroken.config.location import Branch, Entry, Spot, mapping
from unbroken.config.messages import key_mistakes, listed, missing, refused, unusable_file
from unbroken.config.notify import notify_mistakes
from unbroken.config.schema import Schemas, SettingKey
from unbroken.config.site import extra_mistakes, site_mistakes
from unbroken.config.table import Table
from unbroken.errors import Mistake

# What Snakemake refuses as a wildcard (its PeriodicityDetector).
PERIODS = 20
_PERIODIC = re.compile(rf"(.+?)\1{{{PERIODS - 1},}}$")
_DEFAULTS = Branch(("defaults",))
_A_RUN = {"type": "object", "allowed": "keys of a run"}


class Checker:
    """Check one configuration: its schemas, its defaults and all its runs."""

    def __init__(self, schemas: Schemas, base: Path, defaults: object, entries: Sequence[Entry]) -> None:
        self.schemas = schemas
        self.base = base
        self.defaults = mapping(defaults)
        self.entries = entries
        self._first_with: dict[object, str] = {}
        self._problem_of_file: dict[tuple[str, bool], Mistake | None] = {}

    def mistakes(self, config: Mapping[Any, object], table: Table) -> Iterator[Mistake]:
        """Yield all mistakes, some of them perhaps twice."""
        elsewhere = dict.fromkeys(self.schemas.site.keys, "is a key of the site; type it under `site`")
        elsewhere |= dict.fromkeys(self.schemas.run.keys, "is a key of a run; type it under `defaults` or under a run")
        yield from key_mistakes(config, self.schemas.config.keys, Branch().at, elsewhere, partial(self._of_key, table))

    def _of_key(self, table: Table, key: SettingKey, value: Any) -> Iterator[Mistake]:
        if key.name == "notify" and value is not None:
            yield from notify_mistakes(key, value)
        elif key.name == "defaults":
            yield from self._of_run_keys(self.defaults, _DEFAULTS, set(map(self._engine_of, self.entries)))
        elif key.name == "site":
            yield from site_mistakes(mapping(value), self.schemas)
        elif key.name == "runs":
            yield from self.of_entries([entry for entry in self.entries if isinstance(entry.spot, Branch)])
        elif key.name == "runs_table":
            yield from table.mistakes
            yield from self.of_entries([entry for entry in self.entries if not isinstance(entry.spot, Branch)])

    def of_entries(self, entries: Sequence[Entry]) -> Iterator[Mistake]:
        """Yield the mistakes of runs."""
        for entry in entries:
            yield from self._of_name(entry)
            if isinstance(entry.written, Mapping):
                yield from self._of_lacking(entry)
                yield from self._of_run_keys(entry.values, entry.spot, {self._engine_of(entry)})
            else:
                yield refused(entry.written, _A_RUN).at(entry.spot.at())

    def _engine_of(self, entry: Entry) -> str | None:
        """Return the engine that a run or else the defaults name, None if there is no such engine."""
        name = entry.values.get("engine", self.defaults.get("engine"))
        return name if isinstance(name, str) and name in self.schemas.engines else None

    def _of_name(self, entry: Entry) -> Iterator[Mistake]:
        where = entry.spot.at(*(() if isinstance(entry.spot, Branch) else ("run",)))
        if self.schemas.run_name.errors(entry.name):
            yield refused(entry.name, self.schemas.run_name.schema).at(where)
        elif match := _PERIODIC.search(str(entry.name)):
            why = (
                f"'{match[1]}' stands {PERIODS} times or more at its end, and Snakemake takes that for an endless loop"
            )
            yield Mistake(f"found '{entry.name}'", f"another name ({why})", where=where)
        elif entry.name in self._first_with:
            known = f"'{entry.name}' is already the name of {self._first_with[entry.name]}"
            yield Mistake(known, todo="type another", where=where)
        else:
            self._first_with[entry.name] = entry.spot.at()

    def _of_lacking(self, entry: Entry) -> Iterator[Mistake]:
        schema = self.schemas.run
        for name in missing(schema.required, schema.keys, entry.values, self.defaults):
            yield entry.spot.lacks(schema.keys[name])
        engine = self._engine_of(entry)
        if engine is not None and isinstance(entry.values.get("settings", {}), Mapping):
            schema = self.schemas.engines[engine]
            for name in missing(schema.required, schema.keys, entry.settings, mapping(self.defaults.get("settings"))):
                yield entry.spot.lacks(schema.keys[name], "settings")

    def _of_run_keys(self, written: Mapping[Any, object], spot: Spot, engines: set[str | None]) -> Iterator[Mistake]:
        """Yield the mistakes of a run, or of the defaults of runs with these engines."""
        settings = {setting for schema in self.schemas.engines.values() for setting in schema.keys}
        elsewhere = dict.fromkeys(settings, "is a setting; type it under `settings`")

        def more(key: SettingKey, value: Any) -> Iterator[Mistake]:
            if key.schema.get("per_run") and spot == _DEFAULTS:
                yield Mistake(f"`{key.name}` belongs to one run", todo="type it under the run", where=spot.at(key.name))
            elif key.name == "slurm_extra":
                yield from extra_mistakes(key.name, value, spot)
            elif key.name == "settings":
                for engine in filter(None, engines):
                    yield from self._of_settings(value, engine, spot)

        yield from key_mistakes(written, self.schemas.run.keys, spot.at, elsewhere, more)

    def _of_settings(self, settings: Mapping[Any, object], engine: str, spot: Spot) -> Iterator[Mistake]:
        schema = self.schemas.engines[engine]
        elsewhere = dict.fromkeys(self.schemas.run.keys, "is a key of the run; type it beside `settings`")
        others = {name: other for name, other in self.schemas.engines.items() if name != engine}
        for setting in {setting for other in others.values() for setting in other.keys}:
            owners = [name for name, other in others.items() if setting in other.keys]
            elsewhere[setting] = f"is a setting of {listed(owners)}, not of {engine}"
        at = partial(spot.at, "settings")

        def more(key: SettingKey, value: Any) -> Iterator[Mistake]:
            if key.name in schema.keys_of_identity("content"):
                yield from self._of_files(value, at(key.name), may_be_folder=key.schema.get("folders") is True)

        yield from key_mistakes(settings, schema.keys, at, elsewhere, more)

    def _of_files(self, value: object, where: str, *, may_be_folder: bool) -> Iterator[Mistake]:
        for name in value if isinstance(value, list) else [value]:
            asked = (str(name), may_be_folder)
            if asked not in self._problem_of_file:
                self._problem_of_file[asked] = unusable_file(str(name), self.base, may_be_folder=may_be_folder)
            if problem := self._problem_of_file[asked]:
                yield problem.at(where)
