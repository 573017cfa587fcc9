"""Handle tables: outputs whose records contain the program's progress when it wrote them.

Each attempt begins its tables again; what the attempts before have written are pieces.  The program writes the records
after its restart files again.  So when tables are joined, each record is taken once, as it was written last.  A
checkpoint waits until its tables have a later record: then all that belongs to it has left the program's buffers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from pathlib import Path

from unbroken.engines.files.outputs import pieces_of
from unbroken.engines.files.settings import ROWS, ROWS_OF_NUMBERS, OutputSetting
from unbroken.system.copying import append_range

_ANY_ROWS = re.compile(ROWS, re.MULTILINE)
CHUNK_BYTES = 8 * 1024 * 1024
# The beginning of a record, such as the head of a frame, is shorter.
OVERLAP_BYTES = 64 * 1024
# Steps that differ by less are equal: numbers are printed with few digits.
_EQUAL = 0.01


def records(path: Path, pattern: re.Pattern[bytes], begin: int, *, is_closed: bool) -> Iterator[tuple[int, float]]:
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


def last_record(path: Path, pattern: re.Pattern[bytes]) -> float | None:
    """Return the number of the last record of a table that is written yet; None if there is none."""
    return next(reversed(_last_records(path, pattern)), None)


def _last_records(path: Path, pattern: re.Pattern[bytes]) -> list[float]:
    """Return the numbers of the last records of a table; none if it has none."""
    size, span = path.stat().st_size, OVERLAP_BYTES
    while True:
        begin = max(0, size - span)
        # What begins with the part that is read may be the rest of a record.
        found = [number for at, number in records(path, pattern, begin, is_closed=False) if at > begin or not begin]
        if found or not begin:
            return found
        span *= 8


def _first_records(path: Path, pattern: re.Pattern[bytes]) -> list[float]:
    """Return the numbers of the first records of a table."""
    found = records(path, pattern, 0, is_closed=False)
    return [number for _, number in takewhile(lambda record: record[0] < OVERLAP_BYTES, found)]


def missing_between(piece: Path, table: Path, pattern: re.Pattern[bytes]) -> str:
    """Return what is missing where a table was begun again after `piece`, by the steps on both sides; else nothing."""
    last, first = _last_records(piece, pattern), _first_records(table, pattern)
    if not last or not first or first[0] - last[-1] <= _longest_gap(last, first):
        return ""
    return (
        f"records between {last[-1]:.10g} and {first[0]:.10g} are missing: a program that was killed had them in its "
        "buffer, or its restart files are not where their number says"
    )


def counted_again(piece: Path, table: Path, pattern: re.Pattern[bytes], done: float) -> str:
    """Return that a table of a program that has left counts from its restart, as `piece` did, and not up to `done`.

    Of the records with the same numbers only the last ones are joined.
    """
    before, first, last = (
        _first_records(piece, pattern),
        _first_records(table, pattern),
        _last_records(table, pattern),
    )
    if not before or not first or first[0] > before[0]:
        return ""
    if done - last[-1] <= (_longest_gap(first, last) if last[-1] != first[0] else 0):
        return ""
    return (
        f"begins at {first[0]:.10g} and ends at {last[-1]:.10g}, but the restart files say {done:.10g}: records that "
        "count from each restart are missing; write them with the progress"
    )


def _longest_gap(*sides: Sequence[float]) -> float:
    """Return how far a record may be after the one before, by the steps in these records; infinity if unknown.

    A program that counts its steps from its restart writes its first record less than two steps after the last one.
    """
    steps = [later - number for side in sides for number, later in pairwise(side) if later != number]
    if not steps or min(steps) < 0:
        return math.inf
    is_regular = max(steps) - min(steps) <= _EQUAL * max(steps)
    return max(steps) * (2 - 1e-6 if is_regular else 3)


class Tables:
    """Handle the tables of one attempt, in the program's folder."""

    def __init__(self, outputs: Sequence[OutputSetting], folder: Path) -> None:
        self._outputs, self._folder = outputs, folder

    def are_behind(self, done: float) -> bool:
        """Return True if each table has a record after `done`: all up to there have left the program's buffers."""
        last = [self._last(output) for output in self._outputs]
        return all(number is not None and number > done for number in last)

    def missing(self, run_folder: Path, done: float | None = None) -> Iterator[str]:
        """Yield what is missing in tables that this attempt has begun again; `done` is how far it is at its end."""
        for output in self._outputs:
            path = self._folder / output.name
            piece = next((piece for _, piece in pieces_of(run_folder, output.name)), None)
            if piece is None or not path.is_file():
                continue
            found = [missing_between(piece, path, output.record)]
            found += [counted_again(piece, path, output.record, done)] if done is not None else []
            yield from (f"{output.name}: {what}" for what in found if what)

    def last_number(self) -> float | None:
        """Return the number of the last record of the first table that is there."""
        found = (self._last(output) for output in self._outputs)
        return next((number for number in found if number is not None), None)

    def _last(self, output: OutputSetting) -> float | None:
        path = self._folder / output.name
        return last_record(path, output.record) if path.is_file() else None


# --- to join them ---


@dataclass(frozen=True)
class Span:
    """Locate bytes of a file in which the records count up."""

    path: Path
    begin: int
    end: int


@dataclass(frozen=True)
class _Part:
    """Hold the part of a span that is taken: its head, and its records up to the first one of any later span."""

    span: Span
    head: int
    end: int
    first: float
    is_rising: bool = True


def is_joined(pieces: Sequence[Path], pattern: re.Pattern[bytes], target: Path, up_to: float = math.inf) -> bool:
    """Join the pieces of a table, up to the record `up_to`.

    False, and nothing there, if their records do not count up, or there are none.
    """
    return _is_joined([Span(path, 0, path.stat().st_size) for path in pieces], pattern, target, up_to)


def _is_joined(spans: Sequence[Span], pattern: re.Pattern[bytes], target: Path, up_to: float) -> bool:
    parts: list[_Part] = []
    for span in reversed(spans):
        following = min((part.first for part in parts), default=math.nextafter(up_to, math.inf))
        if (part := _part_of(span, pattern, following)) is not None:
            parts.append(part)
    if not parts or not all(part.is_rising for part in parts):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    has_head = False
    with target.open("wb") as joined:
        for part in reversed(parts):
            append_range(part.span.path, joined, part.head if has_head else part.span.begin, part.end)
            has_head = has_head or part.head > part.span.begin
    return True


def _part_of(span: Span, pattern: re.Pattern[bytes], following: float) -> _Part | None:
    """Return what of a span is taken; None if it has no record."""
    found: _Part | None = None
    last = -math.inf
    # The last record of a piece that is followed by another may be torn.
    within = records(span.path, pattern, span.begin, is_closed=following == math.inf)
    for at, number in takewhile(lambda record: record[0] < span.end, within):
        found = found or _Part(span, at, span.end, number)
        if number < last:
            return replace(found, is_rising=False)
        if last < following <= number:
            found = replace(found, end=at)
        last = number
    return found


def _restarts(path: Path, pattern: re.Pattern[bytes]) -> list[int]:
    """Return where the numbers do not count up, or where a record repeats the one before."""
    found: list[int] = []
    head, before, last = b"", 0, -math.inf
    for begin, number in records(path, pattern, 0, is_closed=True):
        if last == -math.inf:
            head = _bytes(path, 0, begin)
        elif number < last or (number == last and _is_again(path, before, begin, head)):
            found.append(begin)
        before, last = begin, number
    return found


def _is_again(path: Path, before: int, begin: int, head: bytes) -> bool:
    """Return True if the table's head is between, or the next record has the bytes of the one before."""
    record = _bytes(path, before, begin)
    return (bool(head) and record.endswith(head)) or _bytes(path, begin, begin + len(record)) == record


def _bytes(path: Path, begin: int, end: int) -> bytes:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(end - begin)


# --- to import them ---


def copy_once(path: Path, pattern: re.Pattern[bytes], target: Path) -> None:
    """Copy a table that a program has continued, each record once, as it was written last.

    A program that was killed after its last save writes the records after that save again when it resumes; many write
    the record of the save itself again too, and some the head of the table.  A last line that a kill has torn is left
    out.
    """
    size = _whole_lines_bytes(path)
    begins = [begin for begin in _restarts(path, pattern) if begin < size]
    spans = [Span(path, *ends) for ends in pairwise([0, *begins, size])]
    if not begins or not _is_joined(spans, pattern, target, math.inf):
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as new:
            append_range(path, new, 0, size)


def _whole_lines_bytes(path: Path) -> int:
    """Return how many bytes of a table end with a line."""
    size = path.stat().st_size
    begin = max(0, size - OVERLAP_BYTES)
    tail = _bytes(path, begin, size)
    return begin + tail.rfind(b"\n") + 1 if b"\n" in tail else size


def why_incomplete(path: Path, pattern: re.Pattern[bytes], done: float) -> str:
    """Return which records up to `done` a table lacks: those before its first one, or lost in a buffer by a kill."""
    numbers = [number for _, number in records(path, pattern, 0, is_closed=True)]
    steps = [later - number for number, later in pairwise(numbers)]
    largest = max(steps, default=0.0)
    if largest <= 0:
        return ""
    if numbers[0] > 2 * largest:
        return f"it begins at {numbers[0]:.10g}; put back what the program wrote before"
    is_regular = largest - min(steps) <= _EQUAL * largest
    if done - numbers[-1] >= (largest if is_regular else 2 * largest):
        return f"it ends at {numbers[-1]:.10g}, but the restart files say {done:.10g}"
    return ""
