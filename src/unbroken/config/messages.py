"""What a mistake in the configuration is called: found, allowed, and what to type, in one line."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from jsonschema.exceptions import ValidationError

from unbroken.config.found import NO_SUCH_FILE as NO_SUCH_FILE
from unbroken.config.found import absent, found
from unbroken.config.found import near as near
from unbroken.config.location import Item, Spot
from unbroken.config.schema import SettingKey

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def wrong_values(key: SettingKey, value: object, spot: Spot, *parent: str) -> list[str]:
    """A line for each part of a value that its schema refuses."""
    lines: dict[str, str] = {}
    for error in key.errors(value):
        inner = [Item(part + 1) if isinstance(part, int) else part for part in error.absolute_path]
        lines.setdefault(spot.at(*parent, key.name, *inner), _refused(key, error))
    return [f"{where}: {text}" for where, text in lines.items()]


def _refused(key: SettingKey, error: ValidationError) -> str:
    schema = error.schema if isinstance(error.schema, Mapping) else key.schema
    return refused(error.instance, schema, key.name)


def refused(value: object, schema: Mapping[str, Any], name: str = "") -> str:
    """What was found, what is allowed, and what to type where that can be guessed."""
    hint = _hint(value, schema)
    return f"found {found(value)}, allowed: {allowed(schema, name)}" + (f"; {hint}" if hint else "")


def unknown(name: object, known: Collection[str], elsewhere: Mapping[str, str]) -> str:
    """The text for a key that does not exist here; `elsewhere` says of a key that exists in another place where."""
    if name in elsewhere:
        return f"`{name}` {elsewhere[str(name)]}"
    if guess := near(name, known):
        return f"unknown key; did you mean `{guess}`?"
    return f"unknown key, allowed: {', '.join(known)}"


def unusable_file(name: str, base: Path, may_be_folder: bool = False) -> str | None:
    """The text for a name that is no file, or that Snakemake cannot take, None if it is good."""
    path = base / name
    if "{" in name or "}" in name:
        return f"found '{name}', allowed: a name without braces, which Snakemake takes for wildcards"
    if path.is_file() or (may_be_folder and path.is_dir()):
        return None
    if path.is_dir():
        return f"found '{name}', which is a folder, allowed: the path of a file"
    return absent(name, base)


def allowed(schema: Mapping[str, Any], name: str = "") -> str:
    """What a schema allows, in words; the unit too unless the key's name says it."""
    if "allowed" in schema:
        return str(schema["allowed"])
    if "enum" in schema:
        return listed(schema["enum"])
    types = schema.get("type", ())
    text = " or ".join(_allowed_type(kind, schema) for kind in ([types] if isinstance(types, str) else types))
    unit = schema.get("unit", "none")
    return text if unit == "none" or unit.lower() in name.split("_") else f"{text} ({unit})"


def listed(names: Collection[object]) -> str:
    """`a, b or c`."""
    *most, last = map(str, names)
    return f"{', '.join(most)} or {last}" if most else last


def _allowed_type(kind: str, schema: Mapping[str, Any]) -> str:
    if kind in ("integer", "number"):
        return ("a whole number" if kind == "integer" else "a number") + _range(schema)
    if kind == "string":
        return "text that is not empty" if schema.get("minLength") else "text"
    if kind == "array":
        return f"a list, each item {allowed(schema['items'])}" if "items" in schema else "a list"
    return {"boolean": "true or false", "object": "a mapping"}.get(kind, kind)


def _range(schema: Mapping[str, Any]) -> str:
    if "minimum" in schema and "maximum" in schema:
        return f" from {schema['minimum']} to {schema['maximum']}"
    if "minimum" in schema:
        return f", {schema['minimum']} or more"
    if "exclusiveMinimum" in schema:
        return f" above {schema['exclusiveMinimum']}"
    return f", {schema['maximum']} or less" if "maximum" in schema else ""


def _hint(value: object, schema: Mapping[str, Any]) -> str | None:
    key = SettingKey("", schema)
    if key.types & {"integer", "number"} and isinstance(value, str):
        number = number_in(value)
        return f"type {number}" if number is not None and not key.errors(number) else None
    if "enum" in schema:
        guess = near(value, [str(choice) for choice in schema["enum"]])
        return f"did you mean `{guess}`?" if guess else None
    if isinstance(value, bool) and "string" in key.types:
        return "put it into quotes"
    if isinstance(value, int | float) and not key.errors(str(value)):
        return f'type "{value}", with the quotes'
    if isinstance(value, str | int | float) and not key.errors([value]):
        return f"type {json.dumps(_words(value))}"
    return "type `name:` lines, not `- ` lines" if isinstance(value, list) and "object" in key.types else None


def _words(value: str | float) -> list[str | float]:
    """A line as one would type it into a shell; a list with it in one piece would be a program of that name."""
    try:
        return [*shlex.split(value)] if isinstance(value, str) else [value]
    except ValueError:  # a quote that is never closed
        return [value]


def number_in(text: str) -> int | float | None:
    """The number that a text says, None if it says none."""
    if not _NUMBER.fullmatch(text):
        return None
    with contextlib.suppress(ValueError):
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number
