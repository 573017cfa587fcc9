"""`notify:` in the configuration: the command that tells somebody, and what it tells."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from unbroken.config.found import found
from unbroken.config.location import Branch, mapping
from unbroken.config.messages import allowed, unknown, wrong_values
from unbroken.config.schema import Schema, SettingKey

_DATE = "a date such as 2026-12-24"
_COMMAND = "a shell command, as typed in a terminal"


@dataclass(frozen=True)
class NotifySettings:
    """What `notify:` says: `by` is the date that the forecast is held against, times in the unit of their names."""

    command: str
    events: tuple[str, ...]
    by: date | None
    limit_seconds: float
    stalled_minutes: float


def notify_mistakes(value: object, schema: Schema) -> Iterator[str]:
    """A line for each mistake in `notify:`."""
    spot = Branch(("notify",))
    keys = _keys(schema)
    written = mapping(value)
    if value is not None and not isinstance(value, Mapping):
        yield f"notify: found {_kind(value)}, allowed: {allowed(schema.keys['notify'].schema)}"
        return
    for name, part in written.items():
        if (key := keys.get(str(name))) is None:
            yield f"{spot.at(name)}: {unknown(name, keys, {})}"
        elif name == "by":
            yield from _by_mistakes(part, spot)
        elif name == "command" and isinstance(part, list | Mapping):
            yield f"{spot.at(name)}: found {_kind(part)}, allowed: {_COMMAND}"
        elif wrong := wrong_values(key, part, spot):
            yield from wrong
        elif name == "command":
            yield from _command_mistakes(str(part), spot)
    if value is not None and "command" not in written:
        yield spot.lacks(keys["command"])
    if written.get("by") is None and "late" in _listed(written.get("events")):
        yield f"{spot.at('events')}: `late` needs a date; type for example `by: 2026-12-24`"


def read_notify(config: Mapping[str, object], schema: Schema) -> NotifySettings | None:
    """The settings of a configuration that was found to be good; None if nobody is to be told."""
    written = config.get("notify")
    if not isinstance(written, Mapping):
        return None
    keys = _keys(schema)
    defaults = {name: key.schema["default"] for name, key in keys.items() if "default" in key.schema}
    values: dict[str, Any] = {**defaults, **written}
    by = values["by"]
    return NotifySettings(
        command=values["command"],
        events=tuple(values["events"]),
        by=None if by is None else date.fromisoformat(str(by)),
        limit_seconds=float(values["limit_seconds"]),
        stalled_minutes=float(values["stalled_minutes"]),
    )


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _keys(schema: Schema) -> dict[str, SettingKey]:
    parts = schema.keys["notify"].schema["properties"]
    return {name: SettingKey(name, part) for name, part in parts.items()}


def _by_mistakes(value: object, spot: Branch) -> Iterator[str]:
    """YAML reads a date that has no quotation marks as one; with them it is text."""
    if value is None:
        return
    try:
        date.fromisoformat(str(value))
    except ValueError:
        yield f"{spot.at('by')}: found {found(value)}, allowed: {_DATE}, or null"


def _command_mistakes(command: str, spot: Branch) -> Iterator[str]:
    """Yield what is wrong with it, without a word of it: it may hold a password."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        yield f"{spot.at('command')}: {str(error).lower()}, allowed: {_COMMAND}"
        return
    if not words:
        yield f"{spot.at('command')}: found no word, allowed: {_COMMAND}"


def _kind(value: object) -> str:
    """Return what a value is, without its content."""
    kinds = {str: "text", list: "a list", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(value), "a mapping" if isinstance(value, Mapping) else "something else")
