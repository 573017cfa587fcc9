"""Compare all files of two folders, each by what it is: a state, a table, a text, or bytes."""

from __future__ import annotations

import filecmp
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from unbroken.rehearsal import states
from unbroken.rehearsal.difference import Difference, Kind, first_difference, instead
from unbroken.system import fs

# Says where a byte is in an engine's own words.
Position = Callable[[Path, int], str]
_READ_BYTES = 1024 * 1024
_LONGEST_CELL = 40
LARGEST_TEXT_BYTES = 16 * 1024 * 1024
LARGEST_TABLE_BYTES = 64 * 1024 * 1024
# More lines than that count as one difference.
MOST_LINES = 200
# What a segment began again lies below its number: `segments/003/log.txt`.
_IN_SEGMENT = re.compile(r"segments/\d+(?:-\d+)*/(.+)", re.DOTALL)
_COMMENT = re.compile(r"\s*[#@!%]")
# So many lines of a table are rows; and so many rows differ where a column differs from a row on.
MOST_OF_THE_LINES = 0.8
MOST_OF_THE_REST = 0.9


def compare_folders(one: Path, other: Path, ignored: Sequence[str], position: Position) -> list[Difference]:
    """Return what `other` has otherwise than `one`: files that one of them lacks, and those with another content.

    Files that match a glob of `ignored`, or that segments began again, are not compared.
    """
    left_out = (*ignored, *begun_again(one, other))
    first, second = ({name for name in _names(each) if not is_excepted(name, left_out)} for each in (one, other))
    found = [Difference(name, Kind.ABSENT, "", "", "is missing") for name in sorted(first - second)]
    found += [Difference(name, Kind.ABSENT, "", "", "is extra") for name in sorted(second - first)]
    for name in sorted(first & second):
        found += _compare(name, one / name, other / name, position)
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


def _compare(name: str, one: Path, other: Path, position: Position) -> list[Difference]:
    if one.is_symlink() or other.is_symlink():
        a, b = (f"a link to {os.readlink(path)}" if path.is_symlink() else "a file" for path in (one, other))
        return [] if a == b else [Difference(name, Kind.ABSENT, "", "", f"{b} instead of {a}")]
    if filecmp.cmp(one, other, shallow=False):
        return []
    if found := states.compare(name, one, other) or _tables(name, one, other):
        return found
    offset = _first_offset(one, other)
    where = position(one, offset) or position(other, offset)
    if not where and (found := _texts(name, one, other)):
        return found
    sizes = one.stat().st_size, other.stat().st_size
    what = f"{sizes[1]:,} bytes instead of {sizes[0]:,}" if sizes[0] != sizes[1] else ""
    return [Difference(name, Kind.BYTES, "", f"from {where or f'byte {offset:,}'} on", what)]


def _texts(name: str, one: Path, other: Path) -> list[Difference]:
    """Return a difference for each line, one where many differ; nothing if it is no text."""
    first, second = _lines(one), _lines(other)
    found = states.differences(name, Kind.TEXT, first, second) if first and second else []
    return found if len(found) <= MOST_LINES else [replace(found[0], name="", where=f"from {found[0].where} on")]


def _lines(path: Path) -> dict[str, str]:
    data = path.read_bytes() if path.stat().st_size <= LARGEST_TEXT_BYTES else b"\0"
    try:
        lines = [] if b"\0" in data else data.decode().splitlines()
    except UnicodeDecodeError:
        return {}
    return {f"line {number}": line for number, line in enumerate(lines, 1)}


def _first_offset(one: Path, other: Path) -> int:
    at = 0
    with one.open("rb") as first, other.open("rb") as second:
        while (a := first.read(_READ_BYTES)) == (b := second.read(_READ_BYTES)) and a:
            at += len(a)
    return at + first_difference(a, b)


# --- tables ---


@dataclass(frozen=True)
class Table:
    """Hold rows of cells as they are written, the first of each a number."""

    columns: tuple[str, ...]
    rows: list[list[str]]


def _tables(name: str, one: Path, other: Path) -> list[Difference]:
    """Return what differs between two tables; nothing if one of them is no table, or they differ in something else."""
    first, second = _table(one), _table(other)
    if first is None or second is None or len(first.columns) != len(second.columns):
        return []
    if len(first.rows) != len(second.rows):
        return [_rows(name, first, second)]
    return [found for index in range(len(first.columns)) if (found := _column(name, first, second, index))]


def _table(path: Path) -> Table | None:
    """Return the table in a file: rows of equally many cells, the first a number; None if it is no table."""
    if path.stat().st_size > LARGEST_TABLE_BYTES:
        return None
    try:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
    except UnicodeDecodeError:
        return None
    kept = [number for number, line in enumerate(lines) if not _COMMENT.match(line)]
    sample = [lines[number] for number in kept[-50:]]
    split = next((each for each in ("\t", ",", ";") if all(each in line for line in sample)), None)
    cells = {number: [cell.strip() for cell in lines[number].split(split)] for number in kept}
    numbered = {number: row for number, row in cells.items() if _is_number(row[0])}
    width = Counter(map(len, numbered.values())).most_common(1)[0][0] if numbered else 0
    rows = {number: row for number, row in numbered.items() if len(row) == width}
    if width < 2 or len(rows) < MOST_OF_THE_LINES * (len(cells) - 1):
        return None
    return Table(_header(lines[: min(rows)], split, width), list(rows.values()))


def _header(above: list[str], split: str | None, width: int) -> tuple[str, ...]:
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
    places = tuple(map(float, keys))
    return Difference(name, Kind.ROWS, "rows", "", what, places[0], places, is_repeated=bool(twice))


def _column(name: str, one: Table, other: Table, index: int) -> Difference | None:
    unlike = [place for place, (a, b) in enumerate(zip(one.rows, other.rows, strict=True)) if a[index] != b[index]]
    if not unlike:
        return None
    first, column = unlike[0], one.columns[index]
    begin = one.rows[first][0]
    row = f"row {first + 1}" + (f" ({one.columns[0]} {begin})" if index else "")
    is_to_the_end = len(unlike) >= MOST_OF_THE_REST * (len(one.rows) - first)
    extent = f"from {row} on" if is_to_the_end else f"{len(unlike)} rows, the first {row}"
    what = instead(one.rows[first][index], other.rows[first][index], _LONGEST_CELL)
    return Difference(name, Kind.COLUMN, column, f"column {column}, {extent}", what, float(begin))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
