"""One run as the user wrote it, and the words for the place where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from unbroken.config.schema import SettingKey


@dataclass(frozen=True)
class Item:
    """A place in a list, counted from 1."""

    number: int


class Spot(Protocol):
    """A place that the user can find: a mapping of the YAML file, or a row of a table."""

    def at(self, *path: object) -> str:
        """The name of what stands at `path` in here."""

    def lacks(self, key: SettingKey, *parent: str) -> str:
        """The whole line for a required key that stands nowhere."""


@dataclass(frozen=True)
class Branch:
    """A mapping of the YAML file."""

    path: tuple[object, ...] = ()

    def at(self, *path: object) -> str:
        """The keys that lead there, joined by dots."""
        return dotted(*self.path, *path)

    def lacks(self, key: SettingKey, *parent: str) -> str:
        """The whole line for a required key that stands nowhere."""
        return f"{self.at(*parent)}: `{key.name}` is missing; type for example `{key.name}: {key.example}`"


@dataclass(frozen=True)
class Entry:
    """One run as the user wrote it: what is not written is not here, and nothing is checked."""

    name: object
    written: object
    spot: Spot

    @property
    def values(self) -> Mapping[Any, object]:
        """The keys of the run; none if something else stands there."""
        return mapping(self.written)

    @property
    def settings(self) -> Mapping[Any, object]:
        """The keys of the engine; none if something else stands there."""
        return mapping(self.values.get("settings"))


def mapping(value: object) -> Mapping[Any, object]:
    """The value if it is a mapping, else an empty one: what is wrong with it is said once, elsewhere."""
    return value if isinstance(value, Mapping) else {}


def dotted(*path: object) -> str:
    """A path as it is written in messages."""
    names = ".".join(_word(part) for part in path if not isinstance(part, Item))
    return names + "".join(f" item {part.number}" for part in path if isinstance(part, Item))


def _word(part: object) -> str:
    text = str(part)
    return text if text.isprintable() else repr(text)
