"""The growing outputs: which of their records belong to a checkpoint, and how the pieces become one file again.

A record says how far the program was when it wrote it.  So each piece holds the records after the checkpoint that it
goes on from, up to its own: whatever was written after it, or twice, is left out, and no record gets lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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
from unbroken.engines.files.records import OVERLAP_BYTES, TablePiece, piece_of, records
from unbroken.engines.files.settings import OutputSetting
from unbroken.runs.checkpoint import PARTS, Checkpoint
from unbroken.runs.lineage import ancestors, verified_parts
from unbroken.runs.store import Store
from unbroken.system.copying import append_range

# For each piece, how many of its bytes come before its first record, and what shows whether the next one fits.
HEADS = "pieces.json"


class Outputs:
    """The tables of one attempt: what of them was handed over by now.

    `done` is how far the attempt goes on from, `before` what is noted of the pieces up to there.
    """

    def __init__(
        self,
        outputs: Sequence[OutputSetting],
        folder: Path,
        done: float | None,
        before: Mapping[str, PieceEnd] = {},
        with_gaps: Collection[str] = (),
    ) -> None:
        self._outputs, self._folder, self._with_gaps = outputs, folder, with_gaps
        self._done = self._origin_done = done
        self._consumed = {output.name: 0 for output in outputs}
        self._ends = {output.name: before.get(output.name, PieceEnd()) for output in outputs}
        self._steps = {name: StepColumn(end.last) for name, end in self._ends.items()}

    def is_safe(self, up_to: float) -> bool:
        """Return True if each table has a later record: then all records up to there have left the buffers."""
        pieces = [self._piece(each, up_to, is_closed=False) for each in self._there()]
        return len(pieces) == len(self._outputs) and all(piece.cut is not None for piece in pieces)

    def hand_over(self, draft: Path, up_to: float, is_closed: bool) -> None:
        """Put the pieces up to a checkpoint into its draft; MissingRecordsError if they do not fit those before."""
        if not self._outputs:
            return
        parts = draft / PARTS
        parts.mkdir(parents=True)
        ends: dict[str, PieceEnd] = {}
        for output in self._there():
            name = output.name
            piece = self._piece(output, up_to, is_closed=is_closed, is_noted=True)
            piece.write(self._folder / name, parts / name)
            ends[name] = self._ends[name] = self._checked_end(name, piece)
            self._consumed[name] = piece.end
        self._done = up_to
        write_ends(parts / HEADS, ends)

    def _checked_end(self, name: str, piece: TablePiece) -> PieceEnd:
        before, steps = self._ends[name], self._steps[name]
        steps.look_ahead(piece.cut, piece.following)
        if name not in self._with_gaps:
            confirm_follows(name, before, piece.first, steps)
            confirm_behind(name, steps, self._origin_done)
        return end_of(before, steps, piece)

    def without_records(self) -> str:
        """Return the name of a table that has content and in which no record was ever found; empty if there is none."""
        for output in self._there():
            end = self._ends[output.name]
            is_empty = end.first is None and end.last is None and not end.head_bytes
            if is_empty and (self._folder / output.name).stat().st_size:
                return output.name
        return ""

    def last_number(self) -> float | None:
        """Return the number of the last record of the first table, for a forecast."""
        for output in self._there():
            path = self._folder / output.name
            tail = max(self._consumed[output.name], path.stat().st_size - OVERLAP_BYTES)
            numbers = [number for _, number in records(path, output.record, tail, is_closed=False)]
            return numbers[-1] if numbers else self._done
        return None

    def _there(self) -> Iterator[OutputSetting]:
        return (output for output in self._outputs if (self._folder / output.name).is_file())

    def _piece(self, output: OutputSetting, up_to: float, *, is_closed: bool, is_noted: bool = False) -> TablePiece:
        name, path = output.name, self._folder / output.name
        # The pieces of a program that called itself done hold all that it wrote, also behind its restart files.
        after = max((each for each in (self._done, self._ends[name].last) if each is not None), default=None)
        after = after if self._done is not None else None
        note = self._steps[name].add if is_noted else lambda _: None
        return piece_of(path, output.record, self._consumed[name], after, up_to, is_closed=is_closed, note=note)


def ends_at(checkpoint: Checkpoint | None) -> Mapping[str, PieceEnd]:
    """Return what is noted of the pieces up to a checkpoint; nothing where it has none."""
    path = checkpoint.folder / PARTS / HEADS if checkpoint else None
    return read_ends(path) if path is not None and path.is_file() else {}


def join(
    checkpoint: Checkpoint, outputs: Sequence[OutputSetting], final: Path, with_gaps: Collection[str] = ()
) -> None:
    """Write each table in one piece, up to a checkpoint.

    CheckpointError names a piece that is not whole, MissingRecordsError a table that is not, unless it has gaps.
    """
    line = ancestors(Store(checkpoint.folder.parent), checkpoint) if outputs else []
    for each in line:
        verified_parts(each)
    ends = [(each.folder / PARTS, ends_at(each)) for each in line]
    for name in (output.name for output in outputs):
        found = [(folder / name, each[name]) for folder, each in ends if name in each]
        if name not in with_gaps:
            confirm_whole(name, [end for _, end in found], checkpoint.passport.progress.done)
        if found:
            (final / name).parent.mkdir(parents=True, exist_ok=True)
            _join(found, final / name)


def _join(pieces: Sequence[tuple[Path, PieceEnd]], target: Path) -> None:
    """Write the pieces behind each other, the head of the first one that has one alone."""
    has_head = False
    with target.open("wb") as joined:
        for path, end in pieces:
            append_range(path, joined, end.head_bytes if has_head else 0, path.stat().st_size)
            has_head = has_head or end.head_bytes > 0
