"""Whether records of a table are missing where two of its pieces meet, by the numbers of the records themselves.

A program writes on behind its restart file, and what it wrote there is cut off with the piece.  When it goes on from
that file, it writes the same again.  If it does not, the restart file was not where its number said, and records are
lost.  A table whose numbers do not count up is not checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.files.records import TablePiece
from unbroken.errors import SegmentError

# Steps that differ by less are equal: numbers are printed with few digits.
_EQUAL = 0.01
# Of a table whose steps differ, the next record may come so many of its largest steps later.
_LARGEST_STEPS = 2.0


class MissingRecordsError(SegmentError):
    """Records of a table are missing; the text says which."""

    def advised(self, run: str, how: str = "") -> SegmentError:
        """Return the same with what to do; `how` is what says how far the restart files are."""
        said = f" ({how})" if how else ""
        return SegmentError(
            f"runs.{run}: {self}; so the restart files are not where their number says{said}; fix how it is read, "
            f"then type: unbroken restart {run}; if records are left out on purpose, add the file to outputs_with_gaps"
        )


@dataclass(frozen=True)
class PieceEnd:
    """What is known of a table at the end of a piece, by the numbers of its records; None where there is none."""

    head_bytes: int = 0  # of the piece, before its first record
    first: float | None = None  # the first record behind the piece before, be it in this one or cut off
    last: float | None = None  # the last record so far that is in a piece
    cut: float | None = None  # the first record behind it, which was written and cut off
    smallest_step: float | None = None
    largest_step: float | None = None


class StepColumn:
    """The steps from record to record in the file of one attempt.

    `last` is the last record that is in the pieces of the attempts before.
    """

    def __init__(self, last: float | None) -> None:
        self._last = last
        self._number: float | None = None
        self.is_rising = True
        self.smallest = math.inf
        self.largest = 0.0
        self.first_new: float | None = None  # the first record that is in no piece of the attempts before

    def add(self, number: float) -> None:
        """Take the next record; one that comes twice counts once."""
        if self.first_new is None and self._last is not None and number > self._last:
            self.first_new = number
        self.look_ahead(self._number, number)
        self._number = number

    def look_ahead(self, number: float | None, following: float | None) -> None:
        """Take a step that will come again: the records before it may be too few to tell what is usual."""
        if number is None or following is None:
            return
        step = following - number
        self.is_rising = self.is_rising and step >= 0
        if step > 0:
            self.smallest, self.largest = min(self.smallest, step), max(self.largest, step)

    @property
    def is_known(self) -> bool:
        """Return True if the numbers count up, and by how much is known."""
        return self.is_rising and self.largest > 0


def confirm_follows(name: str, before: PieceEnd, first: float | None, steps: StepColumn) -> None:
    """MissingRecordsError if records that were cut off before are not written again."""
    if steps.is_known:
        _confirm_gap(name, before, first, [before, PieceEnd(0, None, None, None, steps.smallest, steps.largest)])


def confirm_behind(name: str, steps: StepColumn, done: float | None) -> None:
    """MissingRecordsError if an attempt that goes on from restart files of `done` begins long before that."""
    first = steps.first_new
    if done is not None and first is not None and steps.is_known and done - first > _LARGEST_STEPS * steps.largest:
        raise MissingRecordsError(
            f"{name}: records are missing: it goes on at {first:.10g}, but the restart files say {done:.10g}"
        )


def confirm_whole(name: str, pieces: Sequence[PieceEnd], done: float) -> None:
    """MissingRecordsError if records are missing between the pieces of a table, or at its end at `done`."""
    before = PieceEnd()
    for piece in pieces:
        _confirm_gap(name, before, piece.first, pieces)
        before = piece
    if before.cut is not None and done - before.cut > _allowed_gap(pieces):
        raise MissingRecordsError(
            f"{name}: records are missing: the run is at {done:.10g}, and {before.cut:.10g} was written and not kept"
        )


def confirm_begins(name: str, end: PieceEnd) -> None:
    """MissingRecordsError if a table's first record is not where a program begins that counts from 0."""
    if end.first is not None and end.largest_step is not None and end.first > _LARGEST_STEPS * end.largest_step:
        raise MissingRecordsError(
            f"{name}: records are missing: it begins at {end.first:.10g}; put back what the program wrote before, or, "
            "if it begins there on purpose, add the file to outputs_with_gaps"
        )


def confirm_reaches(name: str, end: PieceEnd, done: float) -> None:
    """MissingRecordsError if the last records before `done` are missing: a killed program had them in its buffer."""
    if (
        end.last is not None
        and end.cut is None
        and end.largest_step is not None
        and done - end.last > _allowed_gap([end])
    ):
        raise MissingRecordsError(
            f"{name}: records are missing: it ends at {end.last:.10g}, but the restart files say {done:.10g}"
        )


def end_of(before: PieceEnd, steps: StepColumn, piece: TablePiece) -> PieceEnd:
    """Return what to note of a new piece."""
    if not steps.is_rising:
        return PieceEnd(piece.head_bytes)
    last, cut = piece.last, piece.cut
    if last is None:  # no record of it: what was cut off before is still to come
        last, cut = before.last, cut if before.cut is None else before.cut
    smallest = steps.smallest if steps.largest else None
    return PieceEnd(piece.head_bytes, piece.first, last, cut, smallest, steps.largest or None)


def read_ends(path: Path) -> dict[str, PieceEnd]:
    """Return what is noted beside the pieces of a checkpoint."""
    return {name: PieceEnd(**note) for name, note in json.loads(path.read_text()).items()}


def write_ends(path: Path, ends: Mapping[str, PieceEnd]) -> None:
    """Note the ends of the pieces of a checkpoint."""
    path.write_text(json.dumps(ends, default=vars) + "\n")


def _confirm_gap(name: str, before: PieceEnd, first: float | None, pieces: Sequence[PieceEnd]) -> None:
    if before.cut is None or first is None or first - before.cut <= _allowed_gap(pieces):
        return
    last = "nothing was kept before" if before.last is None else f"the last one kept is {before.last:.10g}"
    raise MissingRecordsError(
        f"{name}: records are missing: it goes on at {first:.10g}, but {last}, and {before.cut:.10g} came behind it"
    )


def _allowed_gap(pieces: Sequence[PieceEnd]) -> float:
    """Return what may lie between a record that was cut off and the first one that is written instead."""
    smallest = [piece.smallest_step for piece in pieces if piece.smallest_step is not None]
    step = max((piece.largest_step for piece in pieces if piece.largest_step is not None), default=math.inf)
    if step == math.inf or step - min(smallest, default=0) > _EQUAL * step:
        return _LARGEST_STEPS * step
    return step * (1 - 1e-6)  # a program that counts its steps anew goes on less than one step later
