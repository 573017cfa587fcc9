"""What can be wrong with the runs of a configuration; each mistake is one line, in the order of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unbroken.config.location import Branch, Entry, Spot, mapping
from unbroken.config.messages import listed, near, refused, unknown, unusable_file, wrong_values
from unbroken.config.notify import notify_mistakes
from unbroken.config.removed_keys import REMOVED, removed_key
from unbroken.config.schema import Schema, Schemas
from unbroken.config.site_checks import extra_mistakes, site_mistakes
from unbroken.config.table import Table

# What Snakemake refuses as a wildcard (its PeriodicityDetector).
PERIODS = 20
_PERIODIC = re.compile(rf"(.+?)\1{{{PERIODS - 1},}}$")
_A_RUN = {"type": "object", "allowed": "keys of a run"}


class Checker:
    """Knows the schemas, the defaults and all runs of one configuration."""

    def __init__(self, schemas: Schemas, base: Path, defaults: object, entries: Sequence[Entry]) -> None:
        self.schemas = schemas
        self.base = base
        self.defaults = mapping(defaults)
        self.entries = entries
        self._first_with: dict[object, str] = {}
        self._problem_of_file: dict[tuple[str, bool], str | None] = {}

    def mistakes(self, config: Mapping[Any, object], table: Table) -> Iterator[str]:
        """All mistakes, some of them perhaps twice."""
        elsewhere = dict.fromkeys(self.schemas.site.keys, "is a key of the site; type it under `site`")
        elsewhere |= dict.fromkeys(self.schemas.run.keys, "is a key of a run; type it under `defaults` or under a run")
        for name, value in config.items():
            key = self.schemas.config.keys.get(name) if isinstance(name, str) else None
            if key is None:
                yield f"{name}: {removed_key(name, value) or unknown(name, self.schemas.config.keys, elsewhere)}"
            elif name == "notify":
                yield from notify_mistakes(value, self.schemas.config)
            elif wrong := wrong_values(key, value, Branch()):
                yield from wrong
            elif name == "defaults":
                yield from self._of_defaults()
            elif name == "site":
                yield from site_mistakes(mapping(value), self.schemas)
            elif name == "runs":
                yield from self._of_entries([entry for entry in self.entries if isinstance(entry.spot, Branch)])
            elif name == "runs_table":
                yield from table.mistakes
                yield from self._of_entries(table.entries)

    def engine_of(self, entry: Entry) -> str | None:
        """The engine that a run or else the defaults name, None if there is no such engine."""
        name = entry.values.get("engine", self.defaults.get("engine"))
        return name if isinstance(name, str) and name in self.schemas.engines else None

    def _of_defaults(self) -> Iterator[str]:
        spot = Branch(("defaults",))
        for name, value in self.defaults.items():
            key = self.schemas.run.keys.get(name)
            if key is not None and key.schema.get("per_run"):
                yield f"{spot.at(name)}: `{name}` belongs to one run; type it under the run"
            else:
                yield from self._of_run_key(name, value, spot)
        settings = mapping(self.defaults.get("settings"))
        for engine in dict.fromkeys(map(self.engine_of, self.entries)):
            if engine is not None:
                yield from self._of_settings(settings, engine, spot)

    def _of_entries(self, entries: Sequence[Entry]) -> Iterator[str]:
        for entry in entries:
            yield from self._of_name(entry)
            if isinstance(entry.written, Mapping):
                yield from self._of_entry(entry)
            else:
                yield f"{entry.spot.at()}: {refused(entry.written, _A_RUN)}"

    def _of_name(self, entry: Entry) -> Iterator[str]:
        column = () if isinstance(entry.spot, Branch) else ("run",)
        where = entry.spot.at(*column)
        if self.schemas.run_name.errors(entry.name):
            yield f"{where}: {refused(entry.name, self.schemas.run_name.schema)}"
        elif match := _PERIODIC.search(str(entry.name)):
            said = (
                f"'{match[1]}' stands {PERIODS} times or more at its end, and Snakemake takes that for an endless loop"
            )
            yield f"{where}: found '{entry.name}', allowed: another name ({said})"
        elif entry.name in self._first_with:
            yield f"{where}: '{entry.name}' is already the name of {self._first_with[entry.name]}; type another"
        else:
            self._first_with[entry.name] = entry.spot.at()

    def _of_entry(self, entry: Entry) -> Iterator[str]:
        engine = self.engine_of(entry)
        yield from _missing(self.schemas.run, (entry.values, self.defaults), entry.spot)
        if engine is not None and isinstance(entry.values.get("settings", {}), Mapping):
            default = mapping(self.defaults.get("settings"))
            yield from _missing(self.schemas.engines[engine], (entry.settings, default), entry.spot, "settings")
        for name, value in entry.values.items():
            yield from self._of_run_key(name, value, entry.spot)
            if name == "settings" and engine is not None:
                yield from self._of_settings(entry.settings, engine, entry.spot)

    def _of_run_key(self, name: object, value: object, spot: Spot) -> Iterator[str]:
        key = self.schemas.run.keys.get(str(name))
        if key is not None:
            wrong = wrong_values(key, value, spot)
            yield from wrong
            if name == "slurm_extra" and not wrong:
                yield from extra_mistakes(key.name, value, spot)
            return
        if removed := removed_key(name, value):
            yield f"{spot.at(name)}: {removed}"
            return
        settings = {setting for schema in self.schemas.engines.values() for setting in schema.keys}
        elsewhere = dict.fromkeys(settings, "is a setting; type it under `settings`")
        yield f"{spot.at(name)}: {unknown(name, self.schemas.run.keys, elsewhere)}"

    def _of_settings(self, settings: Mapping[Any, object], engine: str, spot: Spot) -> Iterator[str]:
        schema = self.schemas.engines[engine]
        content_keys = schema.keys_of_identity("content")
        for name, value in settings.items():
            key = schema.keys.get(name)
            if key is None:
                where = spot.at("settings", name)
                yield f"{where}: {unknown(name, schema.keys, self._not_settings_of(engine))}"
            elif wrong := wrong_values(key, value, spot, "settings"):
                yield from wrong
            elif name in content_keys:
                yield from self._of_files(value, spot.at("settings", name), key.schema.get("folders") is True)

    def _not_settings_of(self, engine: str) -> dict[str, str]:
        elsewhere = dict.fromkeys(self.schemas.run.keys, "is a key of the run; type it beside `settings`")
        others = {name: schema for name, schema in self.schemas.engines.items() if name != engine}
        for setting in {setting for schema in others.values() for setting in schema.keys}:
            owners = [name for name, schema in others.items() if setting in schema.keys]
            elsewhere[setting] = f"is a setting of {listed(owners)}, not of {engine}"
        return elsewhere

    def _of_files(self, value: object, where: str, may_be_folder: bool) -> Iterator[str]:
        for name in value if isinstance(value, list) else [value]:
            asked = (str(name), may_be_folder)
            if asked not in self._problem_of_file:
                self._problem_of_file[asked] = unusable_file(str(name), self.base, may_be_folder)
            if problem := self._problem_of_file[asked]:
                yield f"{where}: {problem}"


def _missing(schema: Schema, written: Sequence[Mapping[Any, object]], spot: Spot, *parent: str) -> Iterator[str]:
    """Required keys that stand nowhere; not those that an unknown key was probably meant for."""
    unknown_names = (name for values in written for name in values if name not in schema.keys and name not in REMOVED)
    meant = {near(name, schema.keys) for name in unknown_names}
    for name in schema.required:
        if name not in meant and not any(name in values for values in written):
            yield spot.lacks(schema.keys[name], *parent)
