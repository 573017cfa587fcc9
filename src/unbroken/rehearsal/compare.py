"""Compare all files of two folders, each by what it is: a state, a table, a text, or bytes."""

from __future__ import annotations

import filecmp
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatch
from pathlib import Path

from unbroken.rehearsal.states import Array, read
from unbroken.system import fs

LARGEST_TEXT_BYTES = 32 * 1024 * 1024
_READ_BYTES = 1024 * 1024
# What a segment began again lies below its number: `segments/003/log.txt`.
_IN_SEGMENT = re.compile(r"segments/\d+(?:-\d+)*/(.+)", re.DOTALL)
_COMMENT = re.compile(r"\s*[#@!%]")
# So many lines of a table are rows.
MOST_OF_THE_LINES = 0.8
_LONGEST = 60  # characters of a value in a line
_BEFORE = 12  # of them before the first one that differs
_ABSENT = object()


class Kind(IntEnum):
    """Name what a difference is in; the most telling kinds come first."""

    ABSENT = 1  # a file that one of the folders has
    ROWS = 2
    COLUMN = 3
    STATE = 4  # a value of a state, by its key
    TEXT = 5
    BYTES = 6


@dataclass(frozen=True)
class Difference:
    """Hold a difference in a file; `name` is its column, key or line, empty for the whole file."""

    file: str
    kind: Kind
    where: str
    what: str = ""
    name: str = ""
    position: float | None = None  # the number in the first column of the first row that differs
    largest: float = 0.0  # by how much numbers of a state differ at most

    @property
    def place(self) -> str:
        """Return the file and the column, key or line of it; the same in two comparisons."""
        word = {Kind.COLUMN: "column ", Kind.STATE: "key "}.get(self.kind, "")
        return f"{self.file} {word}{self.name}".rstrip()

    def text(self) -> str:
        """Return one line: the file, where in it, and what is there."""
        return ": ".join(filter(None, (self.file, self.where, self.what)))


def compare_folders(one: Path, other: Path, ignored: Sequence[str]) -> list[Difference]:
    """Return what `other` has otherwise than `one`: files that one of them lacks, and those with another content.

    Files that match a glob of `ignored`, or that segments began again, are not compared.
    """
    left_out = (*ignored, *begun_again(one, other))
    first, second = ({name for name in _names(each) if not is_excepted(name, left_out)} for each in (one, other))
    found = [Difference(name, Kind.ABSENT, "is missing") for name in sorted(first - second)]
    found += [Difference(name, Kind.ABSENT, "is extra") for name in sorted(second - first)]
    for name in sorted(first & second):
        found += _compare(name, one / name, other / name)
    return found


def is_excepted(name: str, globs: Iterable[str]) -> bool:
    """Return True if a file matches one of the globs, under its name or under the one that the program gave it."""
    return any(fnmatch(each, glob) for each in (name, _own_name(name)) for glob in globs)


def begun_again(one: Path, other: Path) -> set[str]:
    """Return the files of `one` that the segments of `other` began again: these lie below their numbers there."""
    return _names(one) & {_own_name(name) for name in _names(other) if _own_name(name) != name}


def _names(folder: Path) -> set[str]:
    return set(map(str, fs.tree_files(folder)))


def _own_name(name: str) -> str:
    match = _IN_SEGMENT.fullmatch(name)
    return match[1] if match else name


def _compare(name: str, one: Path, other: Path) -> list[Difference]:
    if one.is_symlink() or other.is_symlink():
        a, b = (f"a link to {os.readlink(path)}" if path.is_symlink() else "a file" for path in (one, other))
        return [] if a == b else [Difference(name, Kind.ABSENT, f"{b} instead of {a}")]
    if filecmp.cmp(one, other, shallow=False):
        return []
    first, second = read(one), read(other)
    if first is not None and second is not None:  # a pickle has other bytes where other objects were shared
        return _values(name, Kind.STATE, first, second)
    texts = _lines(one), _lines(other)
    found = (_tables(name, *texts) or _texts(name, *texts)) if all(texts) else []
    return found or [_bytes(name, one, other)]


# --- values by their keys ---


def _values(name: str, kind: Kind, one: Mapping[str, object], other: Mapping[str, object]) -> list[Difference]:
    found = []
    for key in {**one, **other}:
        a, b = one.get(key, _ABSENT), other.get(key, _ABSENT)
        if not _is_same(a, b):
            what, largest = _against(a, b)
            found.append(Difference(name, kind, key, what, key, largest=largest))
    return found


def _is_same(one: object, other: object) -> bool:
    """Return True also for two NaN, which equal nothing."""
    return one == other or (type(one) is type(other) and not isinstance(one, Array) and repr(one) == repr(other))


def _against(one: object, other: object) -> tuple[str, float]:
    """Return how `other` differs in a few words, and by how much at most."""
    if other is _ABSENT or one is _ABSENT:
        return ("is missing" if other is _ABSENT else "is extra"), 0.0
    if isinstance(one, Array) and isinstance(other, Array):
        return one.against(other)
    return _instead(repr(one), repr(other)), 0.0


def _instead(one: str, other: str) -> str:
    """Return `OTHER instead of ONE`, each cut to what is around the first difference; never two equal texts."""
    is_long = max(len(one), len(other)) > _LONGEST
    begin = max(0, _first_difference(one, other) - _BEFORE) if is_long else 0
    a, b = (("..." if begin else "") + text[begin : begin + _LONGEST] for text in (one, other))
    return f"{b} instead of {a}"


def _first_difference(one: str | bytes, other: str | bytes) -> int:
    """Return the index of the first character or byte that differs; the shorter length if one begins the other."""
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)


# --- texts and bytes ---


def _lines(path: Path) -> list[str]:
    """Return the lines of a text; none of a file that is no text, or a very large one."""
    data = path.read_bytes() if path.stat().st_size <= LARGEST_TEXT_BYTES else b"\0"
    try:
        return [] if b"\0" in data else data.decode().splitlines()
    except UnicodeDecodeError:
        return []


def _texts(name: str, one: Sequence[str], other: Sequence[str]) -> list[Difference]:
    """Return each line that differs; one difference if there are more lines: other ones have each number then."""
    numbered = ({f"line {number}": line for number, line in enumerate(lines, 1)} for lines in (one, other))
    found = _values(name, Kind.TEXT, *numbered)
    if len(one) != len(other):
        what = f"{len(other)} lines instead of {len(one)}"
        return [Difference(name, Kind.TEXT, f"from {found[0].where} on", what)]
    return found


def _bytes(name: str, one: Path, other: Path) -> Difference:
    at = 0
    with one.open("rb") as first, other.open("rb") as second:
        while (a := first.read(_READ_BYTES)) == (b := second.read(_READ_BYTES)) and a:
            at += len(a)
    sizes = one.stat().st_size, other.stat().st_size
    what = f"{sizes[1]:,} bytes instead of {sizes[0]:,}" if sizes[0] != sizes[1] else ""
    return Difference(name, Kind.BYTES, f"from byte {at + _first_difference(a, b):,} on", what)


# --- tables ---


@dataclass(frozen=True)
class Table:
    """Hold rows of cells as they are written, the first of each a number."""

    columns: tuple[str, ...]
    rows: list[list[str]]


def _tables(name: str, one: Sequence[str], other: Sequence[str]) -> list[Difference]:
    """Return what differs between two tables; nothing if one of them is no table, or they differ in something else."""
    first, second = _table(one), _table(other)
    if first is None or second is None or len(first.columns) != len(second.columns):
        return []
    if len(first.rows) != len(second.rows):
        return [_rows(name, first, second)]
    return [found for index in range(len(first.columns)) if (found := _column(name, first, second, index))]


def _table(lines: Sequence[str]) -> Table | None:
    """Return the table in a text: rows of equally many cells, the first a number; None if it is no table."""
    kept = {number: line for number, line in enumerate(lines) if line.strip() and not _COMMENT.match(line)}
    sample = list(kept.values())[-50:]
    split = next((each for each in ("\t", ",", ";") if all(each in line for line in sample)), None)
    cells = {number: [cell.strip() for cell in line.split(split)] for number, line in kept.items()}
    numbered = {number: row for number, row in cells.items() if _is_number(row[0])}
    width = Counter(map(len, numbered.values())).most_common(1)[0][0] if numbered else 0
    rows = {number: row for number, row in numbered.items() if len(row) == width}
    if width < 2 or len(rows) < MOST_OF_THE_LINES * (len(cells) - 1):
        return None
    return Table(_header(lines[: min(rows)], split, width), list(rows.values()))


def _header(above: Sequence[str], split: str | None, width: int) -> tuple[str, ...]:
    """Return the names above the first row, as many as there are columns; numbers where there are none."""
    for line in reversed(above):
        words = line.lstrip("#@!% ").split(split)
        if len(words) == width:
            return tuple(word.strip() for word in words)
    return tuple(str(number) for number in range(1, width + 1))


def _rows(name: str, one: Table, other: Table) -> Difference:
    """Return which rows come twice, are missing, or are new, by their first cells."""
    known, counts = Counter(row[0] for row in one.rows), Counter(row[0] for row in other.rows)
    twice = [key for key in counts if counts[key] > known[key] > 0]
    missing = [key for key in known if counts[key] < known[key]]
    keys = twice or missing or [key for key in counts if key not in known]
    said = "come twice" if twice else "are missing" if missing else "are extra"
    what = f"{len(other.rows)} rows instead of {len(one.rows)}"
    what += f"; {len(keys)} {said}, the first with {one.columns[0]} {keys[0]}"
    return Difference(name, Kind.ROWS, "", what, "rows")


def _column(name: str, one: Table, other: Table, index: int) -> Difference | None:
    pairs = enumerate(zip(one.rows, other.rows, strict=True))
    first = next((place for place, (a, b) in pairs if a[index] != b[index]), None)
    if first is None:
        return None
    row, column = one.rows[first], one.columns[index]
    where = f"column {column}, first in row {first + 1}" + (f" ({one.columns[0]} {row[0]})" if index else "")
    what = _instead(row[index], other.rows[first][index])
    return Difference(name, Kind.COLUMN, where, what, column, float(row[0]))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
