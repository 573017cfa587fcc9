"""Tables: which column differs from which row on, and rows that are missing or come twice."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from unbroken.rehearsal.compare.difference import Difference, Kind
from unbroken.rehearsal.compare.excerpt import excerpts

MOST_OF_THE_REST = 0.9
MOST_OF_THE_LINES = 0.8
LARGEST_BYTES = 64 * 1024 * 1024
_COMMENT = re.compile(r"\s*[#@!%]")
_LONGEST_CELL = 40


@dataclass(frozen=True)
class Table:
    """Cells as they are written; `lines` are their numbers in the file."""

    columns: tuple[str, ...]
    rows: list[list[str]]
    lines: list[int]


def compare(name: str, one: Path, other: Path) -> list[Difference]:
    """What differs between two tables; nothing if one of them is no table, or they differ in something else."""
    first, second = read(one), read(other)
    if first is None or second is None or len(first.columns) != len(second.columns):
        return []
    if keys_differ := _rows(name, first, second):
        return [keys_differ]
    return [found for index in range(len(first.columns)) if (found := _column(name, first, second, index))]


def has_same_rows(one: Path, other: Path) -> bool:
    """True if both are tables and differ in what is no row at most, such as a header that comes again."""
    first, second = read(one), read(other)
    return first is not None and second is not None and first.rows == second.rows


def read(path: Path) -> Table | None:
    """The table in a file: rows of as many cells each, of which the first is a number; None if it is none."""
    if path.stat().st_size > LARGEST_BYTES:
        return None
    try:
        lines = path.read_text().splitlines()
    except UnicodeDecodeError:
        return None
    kept = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and not _COMMENT.match(line)]
    if not kept:
        return None
    split = _delimiter([line for _, line in kept])
    cells = [(number, [cell.strip() for cell in line.split(split or None)]) for number, line in kept]
    rows = [(number, row) for number, row in cells if _is_number(row[0])]
    width = Counter(len(row) for _, row in rows).most_common(1)[0][0] if rows else 0
    rows = [(number, row) for number, row in rows if len(row) == width]
    if width < 2 or len(rows) < MOST_OF_THE_LINES * (len(cells) - 1):
        return None
    return Table(_header(lines, rows[0][0], split, width), [row for _, row in rows], [number for number, _ in rows])


def _delimiter(lines: list[str]) -> str:
    sample = lines[-50:]
    return next((each for each in ("\t", ",", ";") if all(each in line for line in sample)), "")


def _header(lines: list[str], first_row: int, split: str, width: int) -> tuple[str, ...]:
    """The names above the first row, by as many words as there are columns; their numbers where there are none."""
    for line in reversed(lines[: first_row - 1]):
        words = line.lstrip("#@!% ").split(split or None)
        if len(words) == width:
            return tuple(word.strip() for word in words)
    return tuple(str(number) for number in range(1, width + 1))


def _rows(name: str, one: Table, other: Table) -> Difference | None:
    """Rows by their first cells: what comes twice, what is missing, what nobody expects."""
    a, b = [row[0] for row in one.rows], [row[0] for row in other.rows]
    if len(a) == len(b):
        return None
    counts, known = Counter(b), Counter(a)
    twice = [key for key in dict.fromkeys(b) if counts[key] > known[key] > 0]
    missing = [key for key in dict.fromkeys(a) if counts[key] < known[key]]
    more = [key for key in dict.fromkeys(b) if key not in known]
    what = f"{len(b)} rows instead of {len(a)}"
    keys = twice or missing or more
    said = "come twice" if twice else "are missing" if missing else "are there beside the others"
    if keys:
        what += f"; {len(keys)} {said}, the first with {one.columns[0]} {keys[0]}"
    places = tuple(float(key) for key in keys)
    first = places[0] if places else None
    return Difference(name, Kind.ROWS, f"{name} rows", "", what, first, places, is_repeated=bool(twice))


def _column(name: str, one: Table, other: Table, index: int) -> Difference | None:
    unlike = [place for place, (a, b) in enumerate(zip(one.rows, other.rows, strict=True)) if a[index] != b[index]]
    if not unlike:
        return None
    first = unlike[0]
    a, b = one.rows[first], other.rows[first]
    row = f"row {first + 1}" + (f" ({one.columns[0]} {a[0]})" if index else "")
    is_to_the_end = len(unlike) >= MOST_OF_THE_REST * (len(one.rows) - first)
    extent = f"from {row} on" if is_to_the_end else f"{len(unlike)} rows, the first {row}"
    shown = excerpts(a[index], b[index], _LONGEST_CELL)
    what = f"{shown[1]} instead of {shown[0]}"
    column = one.columns[index]
    leaf = f"{name} column {column}"
    return Difference(name, Kind.COLUMN, leaf, f"column {column}, {extent}", what, float(a[0]), key=column)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
