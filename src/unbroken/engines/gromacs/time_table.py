"""Tables whose first column is the time in ps: where one is cut at a checkpoint, and which rows come twice.

PLUMED names its columns (`#! FIELDS time phi`), an xvg its axis; of a table without names the numbers must fit the time
of the segment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

_HEAD_BYTES = 64 * 1024
_COMMENT = (b"#", b"@", b"&")
_FIELDS = re.compile(rb"(?m)^#! FIELDS +(\S+)")
_AXIS = re.compile(rb'(?mi)^@ +xaxis +label +"([^"]*)"')
# Of so many rows one sees whether they come at regular times.
_ROWS_OF_A_RHYTHM = 4
_SLACK = 1e-6


@dataclass(frozen=True)
class Span:
    """Describe what a segment computed: the time where it began and that of its checkpoint, in ps."""

    begin_ps: float
    end_ps: float


@dataclass(frozen=True)
class Cut:
    """Say where a table ends at a checkpoint; `gap_ps` is how long before it regular rows stop, 0 if they do not."""

    size_bytes: int
    gap_ps: float


def cut_at(path: Path, begin: int, span: Span) -> Cut | None:
    """Return where the rows behind a byte are cut, at the time where the span ends; None if it is no table of times."""
    has_names = names_time(path)
    if has_names is False:
        return None
    rows = list(_rows(path, begin))
    times = [time for *_, time in rows]
    if any(time is None for time in times):
        return None
    known = [time for time in times if time is not None]
    if any(later < earlier for earlier, later in pairwise(known)):
        return None
    if has_names is None and not _fits(known, span):
        return None
    end = span.end_ps * (1 + _SLACK) + _SLACK
    kept = [(row[1], time) for row, time in zip(rows, known, strict=True) if time <= end]
    head = rows[0][0] if rows else path.stat().st_size
    return Cut(kept[-1][0] if kept else head, _gap([time for _, time in kept], span))


def names_time(path: Path) -> bool | None:
    """Return whether the head of a table calls its first column a time; None if it has no such head."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if (fields := _FIELDS.search(head)) is not None:
        return fields[1] == b"time"
    if (axis := _AXIS.search(head)) is not None:
        return axis[1].lower().startswith(b"time")
    return None


def time_of(row: bytes) -> float | None:
    """Return the number with which a row begins; None if it is none, or a torn row."""
    words = row.split(maxsplit=1)
    try:
        return float(words[0]) if words and row.endswith(b"\n") else None
    except ValueError:
        return None


def is_comment(row: bytes) -> bool:
    """Return True for a row without numbers: a head, an empty one."""
    return row.startswith(_COMMENT) or not row.strip()


def last_time(path: Path, size_bytes: int) -> float | None:
    """Return the time of the last row before a byte; None if there is none."""
    with path.open("rb") as file:
        file.seek(max(0, size_bytes - _HEAD_BYTES))
        tail = file.read(min(_HEAD_BYTES, size_bytes))
    for row in reversed(tail.splitlines(keepends=True)):
        if not is_comment(row) and (time := time_of(row)) is not None:
            return time
    return None


def first_time(path: Path) -> float | None:
    """Return the time of the first row; None if there is none."""
    with path.open("rb") as file:
        return next((time_of(row) for row in file if not is_comment(row)), None)


def _rows(path: Path, begin: int) -> Iterator[tuple[int, int, float | None]]:
    """Where each row behind a byte begins and ends, and its time; a torn last one is left out."""
    with path.open("rb") as file:
        file.seek(begin)
        at = begin
        for row in file:
            at += len(row)
            if not is_comment(row) and row.endswith(b"\n"):
                yield at - len(row), at, time_of(row)


def _fits(times: list[float], span: Span) -> bool:
    """Numbers that run as the time of the segment does; how far mdrun came behind its checkpoint is not known."""
    if not times:
        return True
    lasted = max(span.end_ps - span.begin_ps, 0.0)
    least, most = span.begin_ps * (1 - _SLACK) - _SLACK, span.end_ps + 2 * lasted + 1.0
    return least <= times[0] <= span.end_ps * (1 + _SLACK) + _SLACK and times[-1] <= most


def _gap(times: list[float], span: Span) -> float:
    """How long before the end regular rows stop: a kill has taken what was not yet written."""
    if len(times) < _ROWS_OF_A_RHYTHM:
        return 0.0
    steps = [later - earlier for earlier, later in pairwise(times[-_ROWS_OF_A_RHYTHM:])]
    if max(steps) > 1.01 * min(steps):
        return 0.0
    missing = span.end_ps - times[-1]
    return missing if missing > 1.01 * max(steps) else 0.0
