"""Takes each record of a table once, as it was written last, where a program has continued it after restarts.

Where a program was killed behind its last save, it writes the records after that save again when it resumes; many write
the record of the save itself again too, and some the head of the table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from unbroken.engines.files.tables import OVERLAP_BYTES, records
from unbroken.system.copying import append_range


@dataclass(frozen=True)
class Restart:
    """The place where a program resumed in a table: the byte of its first record there, and that record's number."""

    begin: int
    number: float


def whole_lines_bytes(path: Path) -> int:
    """Return how many bytes of a table end with a line: the last line of a killed program may be torn."""
    size = path.stat().st_size
    begin = max(0, size - OVERLAP_BYTES)
    tail = _bytes(path, begin, size)
    return begin + tail.rfind(b"\n") + 1 if b"\n" in tail else size


def restarts_in(path: Path, pattern: re.Pattern[bytes]) -> list[Restart]:
    """Return each place where the numbers do not count up, or where a record is the one before once more."""
    found: list[Restart] = []
    before: Restart | None = None
    head = b""
    for begin, number in records(path, pattern, 0, is_closed=True):
        if before is None:
            found.append(Restart(0, number))
            head = _bytes(path, 0, begin)
        elif number < before.number or (number == before.number and _is_again(path, before.begin, begin, head)):
            found.append(Restart(begin, number))
        before = Restart(begin, number)
    return found


def _is_again(path: Path, before: int, begin: int, head: bytes) -> bool:
    """Return True if the head of the table stands between, or the next record has the bytes of the one before."""
    record = _bytes(path, before, begin)
    return (bool(head) and record.endswith(head)) or _bytes(path, begin, begin + len(record)) == record


def write_once(path: Path, pattern: re.Pattern[bytes], restarts: list[Restart], target: Path) -> int:
    """Copy the table without what was written again later; return how many records were left out."""
    ends = [*(restart.begin for restart in restarts[1:]), path.stat().st_size]
    left_out = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as new:
        for place, (restart, end) in enumerate(zip(restarts, ends, strict=True), 1):
            cut = min((later.number for later in restarts[place:]), default=None)
            found = records(path, pattern, restart.begin, is_closed=True) if cut is not None else ()
            again = [at for at, number in found if at < end and cut is not None and number >= cut]
            append_range(path, new, restart.begin, min(again, default=end))
            left_out += len(again)
    return left_out


def why_incomplete(path: Path, pattern: re.Pattern[bytes], done: float) -> str:
    """Return which records up to `done` a table lacks: those before its first one, or lost in a buffer by a kill."""
    numbers = [number for _, number in records(path, pattern, 0, is_closed=True)]
    steps = [later - number for number, later in pairwise(numbers)]
    largest = max(steps, default=0.0)
    if largest <= 0:
        return ""
    if numbers[0] > 2 * largest:
        return f"it begins at {numbers[0]:.10g}; put back what the program wrote before"
    is_regular = largest - min(steps) <= 0.01 * largest
    if done - numbers[-1] >= (largest if is_regular else 2 * largest):
        return f"it ends at {numbers[-1]:.10g}, but the restart files say {done:.10g}"
    return ""


def _bytes(path: Path, begin: int, end: int) -> bytes:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(end - begin)
