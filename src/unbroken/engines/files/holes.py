"""Whether records of an output are missing where two of its pieces meet, by the numbers of the records themselves.

A program writes on behind its restart file, and what it wrote there is cut off with the piece.  When it goes on from
that file, it writes the same again.  If it does not, the restart file was not where its number said, and records are
lost.  An output whose numbers do not count up is not checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import SegmentError

# Steps that differ by less are equal: numbers are printed with few digits.
_EQUAL = 0.01
# Of a table whose steps differ, the next record may come so many of its largest steps later.
_LARGEST_STEPS = 2.0


class MissingRecordsError(SegmentError):
    """Records of an output are missing; the text says which."""

    def advised(self, run: str, how: str = "") -> SegmentError:
        """The same with what to do; `how` is what says how far the restart files are."""
        said = f" ({how})" if how else ""
        return SegmentError(
            f"{self}; so the restart files are not where their number says{said}; fix how it is read, "
            f"then type: unbroken restart {run}; if records are left out on purpose, add the file to outputs_with_gaps",
            run=run,
        )


@dataclass(frozen=True)
class PieceEnd:
    """What is known of an output at the end of a piece, by the numbers of its records; None where there is none."""

    head_bytes: int = 0  # of the piece, before its first record
    first: float | None = None  # the first record behind the piece before, be it in this one or cut off
    last: float | None = None  # the last record so far that is in a piece
    cut: float | None = None  # the first record behind it, which was written and cut off
    smallest_step: float | None = None
    largest_step: float | None = None


class StepColumn:
    """The steps from record to record in the file of one attempt."""

    def __init__(self, last: float | None) -> None:
        """`last` is the last record that is in the pieces of the attempts before."""
        self._last = last
        self._number: float | None = None
        self.is_rising = True
        self.smallest = math.inf
        self.largest = 0.0
        self.first_new: float | None = None  # the first record that is in no piece of the attempts before

    def add(self, number: float) -> None:
        """The next record; one that comes twice counts once."""
        if self.first_new is None and self._last is not None and number > self._last:
            self.first_new = number
        if self._number is not None:
            self._take(number - self._number)
        self._number = number

    def look_ahead(self, number: float | None, following: float | None) -> None:
        """A step that will come again: the records before it may be too few to tell what is usual."""
        if number is not None and following is not None:
            self._take(following - number)

    def _take(self, step: float) -> None:
        self.is_rising = self.is_rising and step >= 0
        if step > 0:
            self.smallest, self.largest = min(self.smallest, step), max(self.largest, step)


def confirm_follows(name: str, before: PieceEnd, first: float | None, steps: StepColumn) -> None:
    """MissingRecordsError if records that were cut off before are not written again."""
    if not steps.is_rising or not steps.largest:
        return
    if before.cut is not None and first is not None and first - before.cut > _allowed_gap([before], steps):
        raise MissingRecordsError(_gap(name, before, first))


def confirm_behind(name: str, steps: StepColumn, done: float | None) -> None:
    """MissingRecordsError if an attempt that goes on from restart files of `done` begins long before that."""
    first = steps.first_new
    if done is None or first is None or not steps.is_rising or not steps.largest:
        return
    if done - first > _LARGEST_STEPS * steps.largest:
        raise MissingRecordsError(
            f"{name}: records are missing: it goes on at {first:.10g}, but the restart files say {done:.10g}"
        )


def confirm_whole(name: str, pieces: Sequence[PieceEnd], done: float) -> None:
    """MissingRecordsError if records are missing between the pieces of an output, or at its end at `done`."""
    allowed = _allowed_gap(pieces)
    before = PieceEnd()
    for piece in pieces:
        if before.cut is not None and piece.first is not None and piece.first - before.cut > allowed:
            raise MissingRecordsError(_gap(name, before, piece.first))
        before = piece
    if before.cut is not None and done - before.cut > allowed:
        raise MissingRecordsError(
            f"{name}: records are missing: the run is at {done:.10g}, and {before.cut:.10g} was written and not kept"
        )


def confirm_begins(name: str, end: PieceEnd) -> None:
    """MissingRecordsError if an output's first record is not where a program begins that counts from 0."""
    if end.first is not None and end.largest_step is not None and end.first > _LARGEST_STEPS * end.largest_step:
        raise MissingRecordsError(
            f"{name}: records are missing: it begins at {end.first:.10g}; put back what the program wrote before, or, "
            "if it begins there on purpose, add the file to outputs_with_gaps"
        )


def confirm_reaches(name: str, end: PieceEnd, done: float) -> None:
    """MissingRecordsError if the last records before `done` are missing: a killed program had them in its buffer."""
    if end.last is None or end.cut is not None or end.largest_step is None:
        return
    if done - end.last > _allowed_gap([end]):
        raise MissingRecordsError(
            f"{name}: records are missing: it ends at {end.last:.10g}, but the restart files say {done:.10g}"
        )


Kept = tuple[float | None, float | None, float | None]


def end_of(before: PieceEnd, steps: StepColumn, head_bytes: int, kept: Kept) -> PieceEnd:
    """What to note of a new piece; `kept` is its first and last record, and the first behind it."""
    first, last, cut = kept
    if not steps.is_rising:
        return PieceEnd(head_bytes)
    smallest = steps.smallest if steps.largest else None
    largest = steps.largest or None
    if last is None:  # no record of it: what was cut off before is still to come
        return PieceEnd(head_bytes, first, before.last, cut if before.cut is None else before.cut, smallest, largest)
    return PieceEnd(head_bytes, first, last, cut, smallest, largest)


def read_ends(path: Path) -> dict[str, PieceEnd]:
    """What is noted beside the pieces of a checkpoint; of an earlier unbroken the heads alone."""
    noted: Mapping[str, object] = json.loads(path.read_text())
    return {
        name: PieceEnd(**note) if isinstance(note, dict) else PieceEnd(int(str(note))) for name, note in noted.items()
    }


def write_ends(path: Path, ends: Mapping[str, PieceEnd]) -> None:
    """Notes it, for `read_ends`."""
    path.write_text(json.dumps({name: vars(end) for name, end in ends.items()}) + "\n")


def _allowed_gap(pieces: Sequence[PieceEnd], steps: StepColumn | None = None) -> float:
    """What may lie between a record that was cut off and the first one that is written instead."""
    smallest = [piece.smallest_step for piece in pieces if piece.smallest_step is not None]
    largest = [piece.largest_step for piece in pieces if piece.largest_step is not None]
    if steps is not None:
        smallest, largest = [*smallest, steps.smallest], [*largest, steps.largest]
    if not largest:
        return math.inf
    step = max(largest)
    is_regular = step - min(smallest) <= _EQUAL * step
    # A program that counts its steps anew goes on less than one step later.
    return step * (1 - 1e-6) if is_regular else _LARGEST_STEPS * step


def _gap(name: str, before: PieceEnd, first: float) -> str:
    last = "nothing was kept before" if before.last is None else f"the last one kept is {before.last:.10g}"
    return f"{name}: records are missing: it goes on at {first:.10g}, but {last}, and {before.cut:.10g} came behind it"
