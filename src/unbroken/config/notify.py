"""`notify:` in the configuration: the command that sends notifications, and the events that it is run for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from unbroken.config.found import found
from unbroken.config.location import Branch
from unbroken.config.messages import allowed
from unbroken.config.schema import Schema, SettingKey
from unbroken.errors import Mistake

KEY = "notify"


@dataclass(frozen=True)
class NotifySettings:
    """The settings of `notify:`; `by` is the date that the forecast is held against."""

    command: str
    events: tuple[str, ...]
    by: date | None
    limit_seconds: float
    stalled_minutes: float


def notify_mistakes(key: SettingKey, written: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield what the schema cannot say, of values that it takes."""
    at = Branch((KEY,)).at
    by = written.get("by")
    if by is not None and _date(by) is None:
        yield Mistake(f"found {found(by)}", allowed(key.parts["by"].schema), where=at("by"))
    if wrong := _wrong_command(written["command"]):
        yield Mistake(wrong, allowed(key.parts["command"].schema), where=at("command"))
    if by is None and "late" in written.get("events", ()):
        yield Mistake("`late` needs a date", todo="type for example `by: 2026-12-24`", where=at("events"))


def read_notify(config: Mapping[str, object], schema: Schema) -> NotifySettings | None:
    """Return the settings of a configuration that was found to be good; None if it asks for no notifications."""
    written = config.get(KEY)
    if not isinstance(written, Mapping):
        return None
    values: Any = schema.keys[KEY].settled(written)
    return NotifySettings(**{**values, "by": _date(values["by"])})


def _date(value: object) -> date | None:
    """Return the date; YAML reads one that has no quotation marks, with them it is text."""
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        return None


def _wrong_command(command: str) -> str:
    """Return what is wrong with it, without quoting it: it may hold a password."""
    try:
        return "" if shlex.split(command) else "found no word"
    except ValueError as error:
        return str(error).lower()
