"""All files of two folders, each compared by what it is: a table, a state, a text, or bytes."""

from __future__ import annotations

import filecmp
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path

from unbroken.rehearsal.compare import stamped, state, table, text
from unbroken.rehearsal.compare.difference import Difference, Kind
from unbroken.system import fs

# What says where a byte is, in an engine's own words.
Position = Callable[[Path, int], str]
_READ_BYTES = 1024 * 1024


def compare_folders(one: Path, other: Path, ignored: Sequence[str], position: Position) -> list[Difference]:
    """What `other` has otherwise than `one`; files that match a glob of `ignored` are passed over."""
    names = sorted({*map(str, fs.tree_files(one)), *map(str, fs.tree_files(other))})
    found: list[Difference] = []
    for name in names:
        if not any(fnmatch(name, glob) for glob in ignored):
            found += _compare(name, one / name, other / name, position)
    return found


def _compare(name: str, one: Path, other: Path, position: Position) -> list[Difference]:
    if not one.exists() or not other.exists():
        what = "is missing" if one.exists() else "is there beside the others"
        return [Difference(name, Kind.ABSENT, f"{name}", "", what)]
    if filecmp.cmp(one, other, shallow=False):
        return []
    for compare in (stamped.compare, state.compare, table.compare):
        if found := compare(name, one, other):
            return found
    offset = _first_difference(one, other)
    where = position(one, offset) or position(other, offset)
    if not where and (found := text.compare(name, one, other)):
        return found
    return [_bytes(name, one, other, where or f"byte {offset:,}")]


def _bytes(name: str, one: Path, other: Path, where: str) -> Difference:
    sizes = one.stat().st_size, other.stat().st_size
    what = f"{sizes[1]:,} bytes instead of {sizes[0]:,}" if sizes[0] != sizes[1] else ""
    return Difference(name, Kind.BYTES, f"{name} bytes", f"from {where} on", what)


def _first_difference(one: Path, other: Path) -> int:
    at = 0
    with one.open("rb") as first, other.open("rb") as second:
        while True:
            a, b = first.read(_READ_BYTES), second.read(_READ_BYTES)
            if a != b:
                return at + next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            if not a:
                return at
            at += len(a)
