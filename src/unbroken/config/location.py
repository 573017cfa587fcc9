"""One run as the user wrote it, and the names of the places in a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from unbroken.config.schema import SettingKey
from unbroken.errors import Mistake


@dataclass(frozen=True)
class Item:
    """A place in a list, counted from 1."""

    number: int


class Spot(Protocol):
    """A place that the user can find: a mapping of the YAML file, or a row of a table."""

    def at(self, *path: object) -> str:
        """Return the name of what stands at `path` in here."""

    def lacks(self, key: SettingKey, *parent: str) -> Mistake:
        """Return the mistake of a required key that stands nowhere."""


@dataclass(frozen=True)
class Branch:
    """Represent a mapping of the YAML file, or its equivalent; `prefix` names it."""

    path: tuple[object, ...] = ()
    prefix: str = ""

    def at(self, *path: object) -> str:
        """Return the keys that lead there, joined by dots."""
        return self.prefix + dotted(*self.path, *path)

    def lacks(self, key: SettingKey, *parent: str) -> Mistake:
        """Return the mistake of a required key that stands nowhere."""
        return key.missing.at(self.at(*parent))


@dataclass(frozen=True)
class Entry:
    """One run as the user wrote it: what is not written is not here, and nothing is checked."""

    name: object
    written: object
    spot: Spot

    @property
    def values(self) -> Mapping[Any, object]:
        """Return the keys of the run; none if something else stands there."""
        return mapping(self.written)

    @property
    def settings(self) -> Mapping[Any, object]:
        """Return the keys of the engine; none if something else stands there."""
        return mapping(self.values.get("settings"))


def mapping(value: object) -> Mapping[Any, object]:
    """Return the value if it is a mapping, else an empty one: another check names what is wrong with it."""
    return value if isinstance(value, Mapping) else {}


def dotted(*path: object) -> str:
    """Return a path as it is written in messages."""
    names = ".".join(_word(part) for part in path if not isinstance(part, Item))
    return names + "".join(f" item {part.number}" for part in path if isinstance(part, Item))


def _word(part: object) -> str:
    text = str(part)
    return text if text.isprintable() else repr(text)
