"""The growing outputs: which of their records belong to a checkpoint, and how the pieces become one file again.

A record says how far the program was when it wrote it.  So each piece holds the records after the checkpoint that it
goes on from, up to its own: whatever was written after it, or twice, is left out, and no record gets lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.files.holes import (
    PieceEnd,
    StepColumn,
    confirm_behind,
    confirm_follows,
    confirm_whole,
    end_of,
    read_ends,
    write_ends,
)
from unbroken.engines.files.settings import ROWS, ROWS_OF_NUMBERS, OutputSetting
from unbroken.errors import SegmentError
from unbroken.runs.checkpoint import PARTS, Checkpoint, verified_parts
from unbroken.runs.select import ancestors
from unbroken.runs.store import Store
from unbroken.system.copying import append_range

# For each piece, how many of its bytes come before its first record, and what shows whether the next one fits.
HEADS = "pieces.json"
_ANY_ROWS = re.compile(ROWS, re.MULTILINE)
CHUNK_BYTES = 8 * 1024 * 1024
# The beginning of a record, such as the head of a frame, is shorter.
OVERLAP_BYTES = 64 * 1024


@dataclass(frozen=True)
class TablePiece:
    """The bytes of an output that belong to a checkpoint, and those before its first record."""

    head_bytes: int
    begin: int
    end: int
    first: float | None  # the number of the first record behind those before, be it in the piece or not
    last: float | None  # of the last record in it
    cut: float | None  # of the first record behind it
    following: float | None  # of the one after that

    @property
    def is_followed(self) -> bool:
        """True if a later record stands behind it, so nothing of it is still in a buffer."""
        return self.cut is not None


def records(path: Path, pattern: re.Pattern[bytes], begin: int, is_closed: bool) -> Iterator[tuple[int, float]]:
    """Where each record begins, and what its number is; one that ends with the file counts only if that is closed."""
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


def _ignore(_number: float) -> None:
    pass


def piece_of(
    path: Path,
    pattern: re.Pattern[bytes],
    consumed: int,
    after: float | None,
    up_to: float,
    is_closed: bool,
    note: Callable[[float], None] = _ignore,
) -> TablePiece:
    """The records in `path` behind `consumed` bytes whose numbers are above `after` and at most `up_to`.

    `note` is told each number that is read.
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
        if first is None and (after is None or number > after):
            first = number
        if number > up_to:
            end, cut = at, number
            following = next((later for _, later in found), None)
            break
        if begin is None and first is not None:
            begin = at
        last = number if begin is not None else None
    size = path.stat().st_size
    stop = end if end is not None else size if head is not None else consumed
    return TablePiece(0 if consumed else head or 0, stop if begin is None else begin, stop, first, last, cut, following)


def write_piece(path: Path, piece: TablePiece, target: Path) -> None:
    """Copies head and records of a piece."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as new:
        append_range(path, new, 0, piece.head_bytes)
        append_range(path, new, piece.begin, piece.end)


class Outputs:
    """The outputs of one attempt: what of them was handed over by now."""

    def __init__(
        self,
        outputs: Sequence[OutputSetting],
        folder: Path,
        done: float | None,
        before: Mapping[str, PieceEnd] = {},
        with_gaps: Collection[str] = (),
    ) -> None:
        """`done` is how far the attempt goes on from, `before` what is noted of the pieces up to there."""
        self._outputs, self._folder, self._done = outputs, folder, done
        self._origin_done = done
        self._with_gaps = with_gaps
        self._consumed = {output.name: 0 for output in outputs}
        self._ends = {output.name: before.get(output.name, PieceEnd()) for output in outputs}
        self._steps = {name: StepColumn(end.last) for name, end in self._ends.items()}

    def is_safe(self, up_to: float) -> bool:
        """True if each output has a later record: then all records up to there have left the program's buffers."""
        return all(piece.is_followed for _, piece in self._pieces(up_to, is_closed=False)) and all(
            (self._folder / output.name).exists() for output in self._outputs
        )

    def hand_over(self, draft: Path, up_to: float, is_closed: bool) -> None:
        """Puts the pieces up to a checkpoint into its draft; MissingRecordsError if they do not fit those before."""
        if not self._outputs:
            return
        parts = draft / PARTS
        parts.mkdir(parents=True)
        ends: dict[str, PieceEnd] = {}
        for output, piece in list(self._pieces(up_to, is_closed, is_noted=True)):
            write_piece(self._folder / output.name, piece, parts / output.name)
            ends[output.name] = self._ends[output.name] = self._checked_end(output.name, piece)
            self._consumed[output.name] = piece.end
        self._done = up_to
        write_ends(parts / HEADS, ends)

    def _checked_end(self, name: str, piece: TablePiece) -> PieceEnd:
        before, steps = self._ends[name], self._steps[name]
        steps.look_ahead(piece.cut, piece.following)
        if name not in self._with_gaps:
            confirm_follows(name, before, piece.first, steps)
            confirm_behind(name, steps, self._origin_done)
        return end_of(before, steps, piece.head_bytes, (piece.first, piece.last, piece.cut))

    def without_records(self) -> str:
        """Return the name of a table that has content and in which no record was ever found; empty if there is none."""
        for output in self._outputs:
            path, end = self._folder / output.name, self._ends[output.name]
            if path.is_file() and path.stat().st_size and end.first is None and end.last is None and not end.head_bytes:
                return output.name
        return ""

    def last_number(self) -> float | None:
        """The number of the last record of the first output, for a forecast."""
        for output in self._outputs:
            path = self._folder / output.name
            if path.exists():
                tail = max(self._consumed[output.name], path.stat().st_size - OVERLAP_BYTES)
                numbers = [number for _, number in records(path, output.record, tail, is_closed=False)]
                return numbers[-1] if numbers else self._done
        return None

    def _pieces(
        self, up_to: float, is_closed: bool, is_noted: bool = False
    ) -> Iterator[tuple[OutputSetting, TablePiece]]:
        for output in self._outputs:
            path, name = self._folder / output.name, output.name
            if path.is_file():
                note = self._steps[name].add if is_noted else _ignore
                after = self._after(name)
                yield output, piece_of(path, output.record, self._consumed[name], after, up_to, is_closed, note)

    def _after(self, name: str) -> float | None:
        """The pieces of a program that called itself done hold all that it wrote, also behind its restart files."""
        last = self._ends[name].last
        return self._done if self._done is None or last is None else max(self._done, last)


def ends_at(checkpoint: Checkpoint | None) -> Mapping[str, PieceEnd]:
    """What is noted of the pieces up to a checkpoint; nothing where it has none."""
    path = checkpoint.folder / PARTS / HEADS if checkpoint else None
    return read_ends(path) if path is not None and path.is_file() else {}


def join(
    checkpoint: Checkpoint, outputs: Sequence[OutputSetting], final: Path, with_gaps: Collection[str] = ()
) -> None:
    """Writes each output in one piece, up to a checkpoint.

    CheckpointError names a piece that is not whole, MissingRecordsError an output that is not, unless it has gaps.
    """
    line = ancestors(Store(checkpoint.folder.parent), checkpoint) if outputs else []
    ends = [_ends(each) for each in line]
    for output in outputs:
        pieces = [(each.folder / PARTS / output.name, end) for each, end in zip(line, ends, strict=True)]
        found = [(path, end[output.name]) for path, end in pieces if output.name in end]
        if output.name not in with_gaps:
            confirm_whole(output.name, [end for _, end in found], checkpoint.passport.progress.done)
        _join_one(output.name, [(path, end.head_bytes) for path, end in found], final)


def _join_one(name: str, pieces: Sequence[tuple[Path, int]], final: Path) -> None:
    if not pieces:
        return
    (final / name).parent.mkdir(parents=True, exist_ok=True)
    has_head = False
    with (final / name).open("wb") as joined:
        for path, head in pieces:
            append_range(path, joined, head if has_head else 0, path.stat().st_size)
            has_head = has_head or head > 0


def _ends(checkpoint: Checkpoint) -> Mapping[str, PieceEnd]:
    verified_parts(checkpoint)
    return read_ends(checkpoint.folder / PARTS / HEADS)
