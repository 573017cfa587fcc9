"""The schemas: the only description of the configuration's keys, read once and then asked key by key.

A key is checked by the jsonschema library on its own, so that mistakes come in the order of the file and a value that
ten thousand rows share is checked once.  What a schema says above its properties is therefore limited to _TOP_LEVEL.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import jsonschema
import yaml
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator

from unbroken.errors import Mistake
from unbroken.store.run import IdentityKeys

_IDENTITY = ("value", "content", "none", "layout", "switch")
_OWN = {"identity_run_keys", "layout_run_keys"}
_TOP_LEVEL = {"$schema", "title", "type", "additionalProperties", "required", "properties"} | _OWN


def _is_integer(_checker: object, value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0


def _is_number(_checker: object, value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value - value == 0


_BASE = jsonschema.Draft202012Validator
# YAML writes .nan and .inf, which no range refuses.
_Validator = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    _BASE, type_checker=_BASE.TYPE_CHECKER.redefine_many({"integer": _is_integer, "number": _is_number})
)


@dataclass(frozen=True)
class SettingKey:
    """One key as its schema describes it."""

    name: str
    schema: Mapping[str, Any]
    _good: set[tuple[type, object]] = field(default_factory=set, repr=False, compare=False)

    @functools.cached_property
    def types(self) -> frozenset[str]:
        """Return the JSON types that the value may have."""
        types = self.schema.get("type", ())
        return frozenset([types] if isinstance(types, str) else types)

    @functools.cached_property
    def parts(self) -> Mapping[str, SettingKey]:
        """Return the keys of a value that is a closed mapping itself."""
        closed = self.schema.get("properties", {}) if self.schema.get("additionalProperties") is False else {}
        return {name: SettingKey(name, part) for name, part in closed.items()}

    @property
    def example(self) -> str:
        """Return what a message proposes to type for a required key."""
        value = self.schema["examples"][0]
        return value if isinstance(value, str) else json.dumps(value)

    @property
    def missing(self) -> Mistake:
        """Return the mistake of a required key that is not written."""
        return Mistake(f"`{self.name}` is missing", todo=f"type for example `{self.name}: {self.example}`")

    @functools.cached_property
    def _validator(self) -> Validator:
        validator: Validator = _Validator(self.schema)
        return validator

    def errors(self, value: object) -> list[ValidationError]:
        """Return what the schema refuses in a value, the names of a mapping left out."""
        is_scalar = value is None or isinstance(value, str | int | float)
        if is_scalar and (type(value), value) in self._good:
            return []
        found = self._validator.iter_errors(cast(Any, value))
        errors = [error for error in found if "propertyNames" not in error.schema_path]
        if is_scalar and not errors:
            self._good.add((type(value), value))
        return errors

    def settled(self, value: object) -> object:
        """Return a good value in its one form: 1.0 and 1 are the same number, a list becomes a tuple."""
        if isinstance(value, float) and value.is_integer() and self.types & {"integer", "number"}:
            return int(value)
        if isinstance(value, Mapping) and self.parts:
            return _settled(self.parts, _defaults(self.parts), value)
        return tuple(value) if isinstance(value, list) else value


def _defaults(keys: Mapping[str, SettingKey]) -> dict[str, object]:
    return {name: key.schema["default"] for name, key in keys.items() if "default" in key.schema}


def _settled(keys: Mapping[str, SettingKey], *layers: Mapping[Any, object]) -> dict[str, object]:
    return {name: keys[name].settled(value) for layer in layers for name, value in layer.items()}


@dataclass(frozen=True)
class Schema:
    """The keys of one mapping of the configuration."""

    title: str
    keys: Mapping[str, SettingKey]
    required: tuple[str, ...]
    identity_run_keys: tuple[str, ...]
    layout_run_keys: tuple[str, ...] = ()

    @functools.cached_property
    def defaults(self) -> Mapping[str, object]:
        """Return the default of each key that has one."""
        return _settled(self.keys, _defaults(self.keys))

    def settled(self, *layers: Mapping[Any, object], with_defaults: bool = True) -> dict[str, Any]:
        """Return good values in their one form, each from the last layer that has it, else the schema's default."""
        return {**(self.defaults if with_defaults else {}), **_settled(self.keys, *layers)}

    @property
    def switch_key(self) -> str:
        """Return the setting that takes the layout out of the identity; empty if the engine has none."""
        return next(iter(self.keys_of_identity("switch")), "")

    @functools.cached_property
    def identity(self) -> IdentityKeys:
        """Return which keys are part of the identity of an engine's runs."""
        return IdentityKeys(
            value_keys=self.keys_of_identity("value"),
            content_keys=self.keys_of_identity("content"),
            run_keys=self.identity_run_keys,
            layout_keys=self.keys_of_identity("layout"),
            layout_run_keys=self.layout_run_keys,
            switch_key=self.switch_key,
        )

    def keys_of_identity(self, kind: str) -> tuple[str, ...]:
        """Return the keys whose schema says `identity: kind`."""
        return tuple(name for name, key in self.keys.items() if key.schema.get("identity") == kind)


@dataclass(frozen=True)
class Schemas:
    """All schemas of the workflow."""

    config: Schema
    site: Schema
    run: Schema
    engines: Mapping[str, Schema]
    # Fills the settings of a run, with the `defaults` and the folder, where an engine's schema has the key `preset`.
    with_preset: Callable[[Any, Mapping[Any, object], Path], Any] = lambda entry, _defaults, _base: entry

    @functools.cached_property
    def run_name(self) -> SettingKey:
        """Return the key that describes the name of a run."""
        return SettingKey("run", self.config.keys["runs"].schema["propertyNames"])

    @property
    def places(self) -> tuple[str, ...]:
        """Return the kinds of machines that a run may ask for."""
        return tuple(self.run.keys["place"].schema["enum"])


def load_schemas(folder: Path, engines: Mapping[str, Path]) -> Schemas:
    """Return the schemas of a configuration, a site and a run from `folder`, and those of the engines' settings."""
    config, site, run = (_load(folder / f"{name}.schema.yaml") for name in ("config", "site", "run"))
    run["properties"]["engine"]["enum"] = list(engines)
    settings = {name: _schema(_load(path)) for name, path in engines.items()}
    return Schemas(_schema(config), _schema(site), _schema(run), settings)


def schema_mistake(path: Path) -> str:
    """Return what keeps a file from being the schema of an engine's settings; empty if nothing does."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        return f"cannot be read ({' '.join(str(error).split())})"
    if not isinstance(document, dict) or not isinstance(document.get("title"), str):
        return "has no title"
    if unread := sorted(map(str, document.keys() - _TOP_LEVEL)):
        return f"says {', '.join(unread)} at its top, which unbroken does not read"
    keys, required = document.get("properties"), document.get("required", [])
    if not isinstance(keys, dict) or not isinstance(required, list):
        return "needs `properties`, a mapping, and `required`, a list"
    if unknown := [name for name in required if name not in keys]:
        return f"requires {unknown[0]}, which it does not describe"
    lines = (
        f"properties.{name}: {line}"
        for name, key in keys.items()
        if (line := _key_mistake(is_required=name in required, key=key))
    )
    return next(lines, "")


def _key_mistake(*, is_required: bool, key: object) -> str:
    if not isinstance(key, dict) or not isinstance(key.get("description"), str):
        return "needs a description"
    if key.get("identity") not in _IDENTITY:
        return f"identity is {key.get('identity')!r}, allowed: {', '.join(_IDENTITY)}"
    if is_required and not (isinstance(key.get("examples"), list) and key["examples"]):
        return "is required, so it needs examples, a list"
    if not is_required and "default" not in key:
        return "is not required, so it needs a default"
    try:
        _BASE.check_schema(key)
    except jsonschema.SchemaError as error:
        return error.message
    return ""


def _load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if unread := document.keys() - _TOP_LEVEL:
        raise ValueError(f"{path}: unbroken does not read {sorted(unread)} at the top of a schema")
    return document


def _schema(document: Mapping[str, Any]) -> Schema:
    keys = {name: SettingKey(name, schema) for name, schema in document["properties"].items()}
    run_keys = tuple(document.get("identity_run_keys", ()))
    layout = tuple(document.get("layout_run_keys", ()))
    return Schema(document["title"], keys, tuple(document.get("required", ())), run_keys, layout)
