"""The mistakes in keys and values of a configuration: what was found, what is allowed, and what to type."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from unbroken.config.found import absent, found, near
from unbroken.config.location import Item
from unbroken.config.schema import SettingKey
from unbroken.errors import Mistake

# Returns the name of what stands at a path below some place.
At = Callable[..., str]
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def _nothing(_key: SettingKey, _value: Any) -> Iterator[Mistake]:
    return iter(())


def key_mistakes(
    written: Mapping[Any, object],
    keys: Mapping[str, SettingKey],
    at: At,
    elsewhere: Mapping[str, str],
    more: Callable[[SettingKey, Any], Iterator[Mistake]] = _nothing,
) -> Iterator[Mistake]:
    """Yield the mistakes of a mapping in its order: unknown keys, refused values, and what `more` finds in good ones.

    `elsewhere` says of a key that exists in another place where.
    """
    for name, value in written.items():
        key = keys.get(name) if isinstance(name, str) else None
        if key is None:
            yield unknown(name, keys, elsewhere).at(at(name))
        elif wrong := value_mistakes(key, value, at):
            yield from wrong
        else:
            yield from more(key, value)


def value_mistakes(key: SettingKey, value: object, at: At) -> list[Mistake]:
    """Return a mistake for each part of a value that its schema refuses."""
    if key.parts and isinstance(value, Mapping):
        lacking = missing(key.schema.get("required", ()), key.parts, value)
        inside = partial(at, key.name)
        lacks = [key.parts[name].missing.at(inside()) for name in lacking]
        return [*lacks, *key_mistakes(value, key.parts, inside, {})]
    mistakes: dict[str, Mistake] = {}
    for error in key.errors(value):
        inner = [Item(part + 1) if isinstance(part, int) else part for part in error.absolute_path]
        schema = error.schema if isinstance(error.schema, Mapping) else key.schema
        where = at(key.name, *inner)
        mistakes.setdefault(where, refused(error.instance, schema, key.name).at(where))
    return list(mistakes.values())


def missing(required: Collection[str], known: Collection[str], *layers: Mapping[Any, object]) -> list[str]:
    """Return the required keys that stand nowhere, without those that an unknown key was probably meant for."""
    written = {name for values in layers for name in values}
    meant = {near(name, known) for name in written if name not in known}
    return [name for name in required if name not in written and name not in meant]


def refused(value: object, schema: Mapping[str, Any], name: str = "") -> Mistake:
    """Return the mistake of a value, with what to type where that can be guessed."""
    shown = _kind(value) if schema.get("secret") and value else found(value)
    return Mistake(f"found {shown}", allowed(schema, name), _hint(value, schema) or "")


def unknown(name: object, known: Collection[str], elsewhere: Mapping[str, str]) -> Mistake:
    """Return the mistake of a key that does not exist here; `elsewhere` says where it does."""
    if name in elsewhere:
        return Mistake(f"`{name}` {elsewhere[str(name)]}")
    if guess := near(name, known):
        return Mistake("unknown key", todo=f"did you mean `{guess}`?")
    return Mistake("unknown key", ", ".join(known))


def unusable_file(name: str, base: Path, *, may_be_folder: bool = False) -> Mistake | None:
    """Return the mistake of a name that is no file, or that Snakemake cannot take; None if it is good."""
    path = base / name
    if "{" in name or "}" in name:
        return Mistake(f"found '{name}'", "a name without braces, which Snakemake takes for wildcards")
    if path.is_file() or (may_be_folder and path.is_dir()):
        return None
    if path.is_dir():
        return Mistake(f"found '{name}', which is a folder", "the path of a file")
    return absent(name, base)


def allowed(schema: Mapping[str, Any], name: str = "") -> str:
    """Return what a schema allows, in words; the unit too unless the key's name says it."""
    if "allowed" in schema:
        return str(schema["allowed"])
    if "enum" in schema:
        return listed(schema["enum"])
    types = schema.get("type", ())
    text = " or ".join(_allowed_type(kind, schema) for kind in ([types] if isinstance(types, str) else types))
    unit = schema.get("unit", "none")
    return text if unit == "none" or unit.lower() in name.split("_") else f"{text} ({unit})"


def listed(names: Collection[object]) -> str:
    """Return `a, b or c`."""
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


def _kind(value: object) -> str:
    """Return what a value is; no word of its text, which may hold a password."""
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, Mapping) else found(value)


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
    """Return a line as one would type it into a shell; a list with it in one piece would be a program of that name."""
    try:
        return [*shlex.split(value)] if isinstance(value, str) else [value]
    except ValueError:  # a quote that is never closed
        return [value]


def number_in(text: str) -> int | float | None:
    """Return the number that a text says, None if it says none."""
    if not _NUMBER.fullmatch(text):
        return None
    with contextlib.suppress(ValueError):
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number
