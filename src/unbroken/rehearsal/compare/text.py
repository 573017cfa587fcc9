"""Texts: the lines that differ."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

from unbroken.rehearsal.compare.difference import Difference, Kind
from unbroken.rehearsal.compare.excerpt import excerpts

LARGEST_BYTES = 16 * 1024 * 1024
# More than so many are told, and known again, as one.
MOST_LINES = 200
_LONGEST_LINE = 60


def compare(name: str, one: Path, other: Path) -> list[Difference]:
    """A difference for each line, one for all where they are many or not as many in both; nothing if it is no text."""
    if max(one.stat().st_size, other.stat().st_size) > LARGEST_BYTES:
        return []
    first, second = _lines(one), _lines(other)
    if first is None or second is None:
        return []
    unlike = [number for number, (a, b) in enumerate(zip_longest(first, second), 1) if a != b]
    if not unlike:  # the ends of the lines
        return []
    if len(first) == len(second) and len(unlike) <= MOST_LINES:
        return [_of_line(name, number, first[number - 1], second[number - 1]) for number in unlike]
    number = unlike[0]
    a, b = (each[number - 1] if number <= len(each) else "(the end)" for each in (first, second))
    shown = _of_line(name, number, a, b)
    lines = "" if len(first) == len(second) else f"; {len(second)} lines instead of {len(first)}"
    return [Difference(name, Kind.TEXT, f"{name} lines", f"from line {number} on", shown.what + lines)]


def _of_line(name: str, number: int, one: str, other: str) -> Difference:
    a, b = excerpts(one, other, _LONGEST_LINE)
    what = f"{b!r} instead of {a!r}"
    return Difference(name, Kind.TEXT, f"{name} line {number}", f"line {number}", what)


def _lines(path: Path) -> list[str] | None:
    data = path.read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError:
        return None
