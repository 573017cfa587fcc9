"""The records of a table: where each begins, and which of them a piece holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.files.settings import ROWS, ROWS_OF_NUMBERS
from unbroken.errors import SegmentError
from unbroken.system.copying import append_range

_ANY_ROWS = re.compile(ROWS, re.MULTILINE)
CHUNK_BYTES = 8 * 1024 * 1024
# The beginning of a record, such as the head of a frame, is shorter.
OVERLAP_BYTES = 64 * 1024


def records(path: Path, pattern: re.Pattern[bytes], begin: int, is_closed: bool) -> Iterator[tuple[int, float]]:
    """Yield where each record begins, and its number; one that ends with the file counts only if that is closed."""
    pattern = _rows_of(path) if pattern.pattern == ROWS else pattern
    data, base, searched = b"", begin, 0
    with path.open("rb") as file:
        file.seek(begin)
        while True:
            chunk = file.read(CHUNK_BYTES)
            data += chunk
            for match in pattern.finditer(data, searched):
                if match.end() == len(data) and not (is_closed and not chunk):
                    break
                if match.end() > searched:
                    searched = match.end()
                    yield base + match.start(), float(match[1])
            if not chunk:
                return
            # What is dropped ends with a line, so that ^ means the same as in the whole file.
            dropped = data.rfind(b"\n", 0, max(0, len(data) - OVERLAP_BYTES)) + 1
            data, base, searched = data[dropped:], base + dropped, max(0, searched - dropped)


def _rows_of(path: Path) -> re.Pattern[bytes]:
    """Return what begins a row of a table: of one that has rows of numbers, no text that begins with a number does."""
    with path.open("rb") as file:
        is_of_numbers = ROWS_OF_NUMBERS.search(file.read(CHUNK_BYTES)) is not None
    return ROWS_OF_NUMBERS if is_of_numbers else _ANY_ROWS


@dataclass(frozen=True)
class TablePiece:
    """The bytes of a table that belong to a checkpoint, and those before its first record."""

    head_bytes: int
    begin: int
    end: int
    first: float | None  # the number of the first record behind those before, be it in the piece or not
    last: float | None  # of the last record in it
    cut: float | None  # of the first record behind it: then nothing of it is still in a buffer
    following: float | None  # of the one after that

    def write(self, path: Path, target: Path) -> None:
        """Copy its head and its records."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as new:
            append_range(path, new, 0, self.head_bytes)
            append_range(path, new, self.begin, self.end)


def piece_of(
    path: Path,
    pattern: re.Pattern[bytes],
    consumed: int,
    after: float | None,
    up_to: float,
    *,
    is_closed: bool,
    note: Callable[[float], None] = lambda _: None,
) -> TablePiece:
    """Return the piece of the records behind `consumed` bytes whose numbers are above `after` and at most `up_to`.

    `note` gets each number that is read.
    """
    head, begin, end = None, None, None
    first, last, cut, following = None, None, None, None
    found = records(path, pattern, consumed, is_closed)
    for at, number in found:
        note(number)
        if consumed and after is not None and number < after:
            raise SegmentError(
                f"{path}: a record of {number:.10g} comes after the restart files of {after:.10g}; an output's records "
                "must count up like the progress"
            )
        head = at if head is None else head
        first = number if first is None and (after is None or number > after) else first
        if number > up_to:
            end, cut = at, number
            following = next((later for _, later in found), None)
            break
        begin = at if begin is None and first is not None else begin
        last = number if begin is not None else None
    size = path.stat().st_size
    stop = end if end is not None else size if head is not None else consumed
    return TablePiece(0 if consumed else head or 0, stop if begin is None else begin, stop, first, last, cut, following)
