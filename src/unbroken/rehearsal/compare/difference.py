"""One thing that differs between two runs of the same computation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What kind of thing differs."""

    # First what tells most.
    ABSENT = "absent"  # a file that one of them has
    ROWS = "rows"  # how many rows, or which
    COLUMN = "column"
    STATE = "state"  # a value of a state, by its key
    TEXT = "text"
    BYTES = "bytes"
    STORED = "stored"  # the same values in other bytes


@dataclass(frozen=True)
class Difference:
    """`leaf` names it, so that the same one is known again between two other runs; `where` and `what` are for people.

    `position` is the number in the first column of the first row that differs, where there is one.
    """

    file: str
    kind: Kind
    leaf: str
    where: str
    what: str = ""
    position: float | None = None
    positions: tuple[float, ...] = ()  # of all rows that are too many, or too few
    is_repeated: bool = False  # rows that come twice
    key: str = ""  # of the state, or the name of the column
    largest: float | None = None  # by how much numbers of a state differ at most

    @property
    def place(self) -> str:
        """The file and the column, key or line of it."""
        return self.leaf.removesuffix(" bytes").removesuffix(" lines")

    def text(self) -> str:
        """One line: the file, where in it, and what is there."""
        place = f"{self.file}: {self.where}" if self.where else self.file
        return f"{place}: {self.what}" if self.what else place
