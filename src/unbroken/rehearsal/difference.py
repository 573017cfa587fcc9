"""Describe one thing that differs between two runs of the same computation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

_CUT = "..."
_BEFORE = 12  # characters shown before the first one that differs


class Kind(Enum):
    """Name the kind of a difference; the most telling kinds come first."""

    ABSENT = "absent"  # a file that one of them has
    ROWS = "rows"
    COLUMN = "column"
    STATE = "state"  # a value of a state, by its key
    TEXT = "text"
    BYTES = "bytes"
    STORED = "stored"  # the same values in other bytes


@dataclass(frozen=True)
class Difference:
    """Hold a difference in a file: `name` is its column, key or line, empty for the file; `where`, `what` are texts.

    `position` is the number in the first column of the first row that differs, where there is one.
    """

    file: str
    kind: Kind
    name: str
    where: str
    what: str = ""
    position: float | None = None
    positions: tuple[float, ...] = ()  # of all rows that are too many, or too few
    is_repeated: bool = False  # rows that come twice
    largest: float | None = None  # by how much numbers of a state differ at most

    @property
    def place(self) -> str:
        """Return the file and the column, key or line of it; the same in two comparisons."""
        word = {Kind.COLUMN: "column ", Kind.STATE: "key "}.get(self.kind, "")
        return f"{self.file} {word}{self.name}".rstrip()

    def text(self) -> str:
        """Return one line: the file, where in it, and what is there."""
        return ": ".join(filter(None, (self.file, self.where, self.what)))


def instead(one: str, other: str, longest: int) -> str:
    """Return `OTHER instead of ONE`, each cut to `longest` characters around the first difference; never equal."""
    begin = max(0, first_difference(one, other) - _BEFORE) if max(len(one), len(other)) > longest else 0
    return f"{_cut(other, begin, longest)} instead of {_cut(one, begin, longest)}"


def first_difference(one: str | bytes, other: str | bytes) -> int:
    """Return the index of the first character or byte that differs; the shorter length if one begins the other."""
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)


def _cut(text: str, begin: int, longest: int) -> str:
    head, rest = _CUT if begin else "", text[begin:]
    space = longest - len(head)
    return head + (rest if len(rest) <= space else rest[: space - len(_CUT)] + _CUT)
