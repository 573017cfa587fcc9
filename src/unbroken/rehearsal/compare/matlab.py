"""MAT-files of version 5, 6 and 7, which say in their first line when they were written."""

from __future__ import annotations

from pathlib import Path

from unbroken.rehearsal.compare.difference import Difference, Kind

_MAGIC = b"MATLAB 5.0 MAT-file"
# Text in the header; behind it begins what the file holds ["MAT-File Format", MathWorks, table 1-1].
_TEXT_BYTES = 116


def compare(name: str, one: Path, other: Path) -> list[Difference]:
    """One difference where nothing but that line is another; nothing else is read of them."""
    with one.open("rb") as first, other.open("rb") as second:
        if not (first.read(_TEXT_BYTES).startswith(_MAGIC) and second.read(_TEXT_BYTES).startswith(_MAGIC)):
            return []
        if first.read() != second.read():
            return []
    return [Difference(name, Kind.STORED, f"{name} stored", "", "the same values, written at another time")]
