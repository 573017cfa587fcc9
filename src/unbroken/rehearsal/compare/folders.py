"""All files of two folders, each compared by what it is: a table, a state, a text, or bytes."""

from __future__ import annotations

import filecmp
import os
import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path

from unbroken.rehearsal.compare import stamped, state, table, text
from unbroken.rehearsal.compare.difference import Difference, Kind
from unbroken.rehearsal.compare.excerpt import first_difference
from unbroken.system import fs

# What says where a byte is, in an engine's own words.
Position = Callable[[Path, int], str]
_READ_BYTES = 1024 * 1024
_SHOWN_BYTES = 8
# What a segment began again lies below its number: `segments/003/log.txt`.
_IN_SEGMENT = re.compile(r"segments/(\d+(?:-\d+)*)/(.+)", re.DOTALL)


def compare_folders(one: Path, other: Path, ignored: Sequence[str], position: Position) -> list[Difference]:
    """Return what `other` has otherwise than `one`: files that one of them lacks, and those with another content.

    Files that match a glob of `ignored` are passed over, also those that a segment has below its number; so are files
    that segments began again.
    """
    first, second = (_compared(folder, (*ignored, *begun_again(one, other))) for folder in (one, other))
    found = _absent(first, second)
    for name in sorted(first & second):
        found += _compare(name, one / name, other / name, position)
    return found


def is_excepted(name: str, globs: Sequence[str]) -> bool:
    """Return True if a file matches one of the globs, under its name or under the one that a segment's file has."""
    match = _IN_SEGMENT.fullmatch(name)
    names = (name, match[2]) if match else (name,)
    return any(fnmatch(each, glob) for each in names for glob in globs)


def begun_again(one: Path, other: Path) -> list[str]:
    """Return the files of `one` that the segments of `other` began again: these lie below their numbers there."""
    names = {str(path) for path in fs.tree_files(one)}
    matches = [_IN_SEGMENT.fullmatch(str(path)) for path in fs.tree_files(other)]
    return sorted({match[2] for match in matches if match} & names)


def _compared(folder: Path, ignored: Sequence[str]) -> set[str]:
    return {name for name in map(str, fs.tree_files(folder)) if not is_excepted(name, ignored)}


def _absent(one: set[str], other: set[str]) -> list[Difference]:
    """Return a difference for each file that one side lacks; what lies there in segments is told with its name."""
    missing, extra = _by_name(one - other), _by_name(other - one)
    names = sorted({*missing, *extra})
    return [
        Difference(name, Kind.ABSENT, name, "", _whats_absent(name, missing.get(name, []), extra.get(name, [])))
        for name in names
    ]


def _whats_absent(name: str, missing: Sequence[str], extra: Sequence[str]) -> str:
    if missing:
        return _is_missing(name, missing)
    return "is there beside the others" if extra == [name] else f"{_listed(extra)} is there beside the others"


def _is_missing(name: str, missing: Sequence[str]) -> str:
    return "is missing" if missing == [name] else f"{_listed(missing)} is missing"


def _by_name(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of files by the name that the program gave them."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        match = _IN_SEGMENT.fullmatch(name)
        found.setdefault(match[2] if match else name, []).append(name)
    return found


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _compare(name: str, one: Path, other: Path, position: Position) -> list[Difference]:
    if one.is_symlink() or other.is_symlink():
        a, b = (f"a link to {os.readlink(path)}" if path.is_symlink() else "a file" for path in (one, other))
        return [] if a == b else [Difference(name, Kind.ABSENT, name, "", f"{b} instead of {a}")]
    if filecmp.cmp(one, other, shallow=False):
        return []
    for compare in (stamped.compare, state.compare, table.compare):
        if found := compare(name, one, other):
            return found
    offset = _first_difference(one, other)
    where = position(one, offset) or position(other, offset)
    if not where and (found := text.compare(name, one, other)):
        return found
    what = "" if where else _shown(one, other, offset)
    return [_bytes(name, one, other, where or f"byte {offset:,}", what)]


def _bytes(name: str, one: Path, other: Path, where: str, shown: str) -> Difference:
    sizes = one.stat().st_size, other.stat().st_size
    length = f"{sizes[1]:,} bytes instead of {sizes[0]:,}" if sizes[0] != sizes[1] else ""
    what = "; ".join(filter(None, (shown, length)))
    return Difference(name, Kind.BYTES, f"{name} bytes", f"from {where} on", what)


def _shown(one: Path, other: Path, offset: int) -> str:
    """Return the first bytes that differ, in hexadecimal."""
    a, b = (_bytes_at(path, offset) or "the end" for path in (one, other))
    return f"{b} instead of {a}"


def _bytes_at(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(_SHOWN_BYTES).hex(" ")


def _first_difference(one: Path, other: Path) -> int:
    at = 0
    with one.open("rb") as first, other.open("rb") as second:
        while True:
            a, b = first.read(_READ_BYTES), second.read(_READ_BYTES)
            if a != b:
                return at + first_difference(a, b)
            if not a:
                return at
            at += len(a)
