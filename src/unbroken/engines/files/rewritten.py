"""Tables to which a program went on writing after restarts: what it wrote twice is taken once, as it was written last.

Where a program was killed behind its last save, it writes the records after that save again when it goes on; many write
the record of the save itself again too, and some the head of the table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.files.tables import OVERLAP_BYTES, records
from unbroken.system.copying import append_range


@dataclass(frozen=True)
class Restart:
    """Where a program went on in a table: the byte of its first record there, and that record's number."""

    begin: int
    number: float


def whole_lines_bytes(path: Path) -> int:
    """How many bytes of a table end with a line: the last line of a killed program may be torn."""
    size = path.stat().st_size
    begin = max(0, size - OVERLAP_BYTES)
    tail = _bytes(path, begin, size)
    return begin + tail.rfind(b"\n") + 1 if b"\n" in tail else size


def restarts_in(path: Path, pattern: re.Pattern[bytes]) -> list[Restart]:
    """Each place where the numbers do not count up, or where a record is the one before once more."""
    found: list[Restart] = []
    before: Restart | None = None
    at_head = b""
    for begin, number in records(path, pattern, 0, is_closed=True):
        if before is None:
            found.append(Restart(0, number))
            at_head = _bytes(path, 0, begin)
        elif number < before.number or (number == before.number and _is_again(path, before.begin, begin, at_head)):
            found.append(Restart(begin, number))
        before = Restart(begin, number)
    return found


def _is_again(path: Path, before: int, begin: int, head: bytes) -> bool:
    """True if the head of the table stands between, or the next record has the bytes of the one before."""
    record = _bytes(path, before, begin)
    return (bool(head) and record.endswith(head)) or _bytes(path, begin, begin + len(record)) == record


def write_once(path: Path, pattern: re.Pattern[bytes], restarts: list[Restart], target: Path) -> int:
    """Copies the table without what was written again later; how many records were left out."""
    cuts = [min(later.number for later in restarts[place:]) for place in range(1, len(restarts))]
    size = path.stat().st_size
    ends = [*(restart.begin for restart in restarts[1:]), size]
    left_out = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as new:
        for place, restart in enumerate(restarts):
            end, cut = ends[place], cuts[place] if place < len(cuts) else None
            counted, dropped = _kept(path, pattern, restart.begin, end, cut)
            append_range(path, new, restart.begin, counted)
            left_out += dropped
    return left_out


def _kept(path: Path, pattern: re.Pattern[bytes], begin: int, end: int, cut: float | None) -> tuple[int, int]:
    """Up to which byte the records from `begin` to `end` are below `cut`, and how many are not."""
    if cut is None:
        return end, 0
    stop, dropped = end, 0
    for at, number in records(path, pattern, begin, is_closed=True):
        if at >= end:
            break
        if number >= cut:
            stop, dropped = min(stop, at), dropped + 1
    return stop, dropped


def _bytes(path: Path, begin: int, end: int) -> bytes:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(end - begin)
