"""Join the pieces that the segments left: one trajectory, one energy file, one log, one structure.

Of each piece only those bytes are taken that its checkpoint counted, because the next piece begins right there, as with
mdrun's own appending.  So the joined trajectory is that of one uninterrupted mdrun, byte for byte where the simulation
is exact, and so is each energy in the energy file; the sums next to them restart with each part, as mdrun wrote them.
`gmx trjcat` gives the same bytes, but unpacks and packs each frame; `gmx eneconv` rounds times to single precision.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from unbroken.engines.gromacs.command import ALONE
from unbroken.engines.gromacs.others import collect_others
from unbroken.engines.gromacs.outputs import ROTATION_LOGS, STEM, is_table
from unbroken.engines.gromacs.parts import offsets_of, parts_of
from unbroken.engines.gromacs.tables import is_reference, rows_of
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import Checkpoint, verified_parts, verify_files
from unbroken.runs.select import ancestors
from unbroken.runs.store import Store
from unbroken.system.copying import append_range

SEGMENTS_TABLE = "segments.tsv"
_PIECE = re.compile(rf"{STEM}(?P<stem>.*)\.part(?P<part>\d+)(?P<end>.*)")
_ENERGY_MAGIC = -55555
# A frame begins with these, in single or double precision.
_ENERGY_FRAMES = [struct.pack(kind, -2e10, -7777777) for kind in (">fi", ">di")]
# A few hundred names and units.
_LONGEST_HEAD = 1024 * 1024


@dataclass(frozen=True)
class TrajectoryPiece:
    """Describe one file of one part, and how many of its bytes count."""

    path: Path
    size_bytes: int

    @property
    def kind(self) -> str:
        """Return the end of the names that it is joined with: `_pullx.xvg` of md.part0001_pullx.xvg."""
        found = _PIECE.fullmatch(self.path.name)
        return found["stem"] + found["end"] if found else self.path.name

    @property
    def part(self) -> int:
        """Return the number of its part."""
        found = _PIECE.fullmatch(self.path.name)
        return int(found["part"]) if found else 0


def joinable_line(checkpoint: Checkpoint) -> list[Checkpoint]:
    """Return the ancestry of a checkpoint, oldest first; raise CheckpointError for a piece that is not complete."""
    line = ancestors(Store(checkpoint.folder.parent), checkpoint)
    for each in line[:-1]:
        verified_parts(each)
    verify_files(checkpoint)
    return line


def join(checkpoint: Checkpoint, final: Path, replicas: Sequence[str] = (ALONE,)) -> None:
    """Fill `final` with the joined results up to a checkpoint, of each replica in a folder of its own.

    The last part counts to its end, later than its checkpoint, if the simulation ended with it.
    """
    line = joinable_line(checkpoint)
    (final / SEGMENTS_TABLE).write_text(segments_table(line))
    for replica in replicas:
        (final / replica).mkdir(exist_ok=True)
        pieces = [piece for piece in counted_pieces(line, replica) if piece.size_bytes]
        for kind in sorted({piece.kind for piece in pieces}):
            join_kind(kind, [piece for piece in pieces if piece.kind == kind], final / replica / f"{STEM}{kind}")
        collect_others(line, final / replica, replica)


def segments_table(line: Sequence[Checkpoint]) -> str:
    """Return a row a part: which segment made it and where in the simulation it ends, tab-separated."""
    rows = ["segment\tend_step\tend_ps\thost\tthreads\tcheckpoint"]
    for each in line:
        passport = each.passport
        words = (passport.host.get("name", ""), passport.identity_parts.get("threads", ""), each.name)
        end = passport.progress.metrics.get("time_ps", "")
        rows.append("\t".join(map(str, (passport.segment, int(passport.progress.done), end, *words))))
    return "\n".join(rows) + "\n"


def counted_pieces(line: Sequence[Checkpoint], replica: str = ALONE) -> list[TrajectoryPiece]:
    """Return the pieces of an ancestry in order, each with the bytes that the last checkpoint on it counts.

    A checkpoint may lie next to its pieces, or count more bytes of those of the checkpoint before.
    """
    found: dict[str, TrajectoryPiece] = {}
    for each in line:
        parts = parts_of(each.folder, replica)
        paths = [path for path in sorted(parts.iterdir()) if ".part" in path.name]
        found.update({path.name: TrajectoryPiece(path, path.stat().st_size) for path in paths})
        is_end = each is line[-1] and each.passport.is_finished
        for name, counted in offsets_of(parts).items():
            found[name] = _counted(found, name, None if is_end else counted, each)
        if not is_end:
            found = {name: piece for name, piece in found.items() if piece.path.suffix != ".gro"}
    return list(found.values())


def _counted(
    found: dict[str, TrajectoryPiece], name: str, counted: int | None, checkpoint: Checkpoint
) -> TrajectoryPiece:
    if name not in found:
        raise CheckpointError(f"{checkpoint.folder}: its checkpoint counts {name}, which is in none of those before")
    path = found[name].path
    size = path.stat().st_size
    if counted is not None and counted > size:
        raise CheckpointError(f"{path}: {size} bytes, {checkpoint.name} counts {counted}")
    return TrajectoryPiece(path, size if counted is None else counted)


def join_kind(kind: str, pieces: Sequence[TrajectoryPiece], target: Path) -> None:
    """Join pieces of one kind; raise CheckpointError if two are of one part, or have other energies."""
    for earlier, later in pairwise(pieces):
        if earlier.part >= later.part:
            names = f"{earlier.path.name} and {later.path.name} would become one table, {target.name}"
            raise CheckpointError(f"{later.path.parent}: {names}; nothing was joined; join by hand")
    with target.open("wb") as joined:
        for number, piece in enumerate(pieces):
            if is_table(kind):
                _append_table(piece, joined, pieces[number - 1] if number else None)
            else:
                skipped = _same_head_bytes(pieces[0], piece) if kind == ".edr" and number else 0
                append_range(piece.path, joined, skipped, piece.size_bytes)


def _append_table(piece: TrajectoryPiece, joined: BinaryIO, before: TrajectoryPiece | None) -> None:
    """Append the rows of a table of numbers; the head of the first one serves for all, and no row comes twice.

    mdrun prints some tables, such as an electric field, before it writes the checkpoint of a step, and again when it
    resumes there.
    """
    if before is None:
        joined.writelines(_without_origin(piece.path.read_bytes()[: piece.size_bytes].splitlines(keepends=True)))
        return
    rows = rows_of(piece.path, 0, piece.size_bytes)
    if piece.kind in ROTATION_LOGS:
        rows = [row for row in rows if not is_reference(row)]
    printed = rows_of(before.path, 0, before.size_bytes)
    is_repeated = rows and printed and rows[0].text == printed[-1].text
    joined.writelines(row.text for row in rows[1 if is_repeated else 0 :])


def _without_origin(rows: list[bytes]) -> list[bytes]:
    """Return the rows without the date, the folder and the command line, which are those of the first part alone."""
    if not rows or not rows[0].startswith(b"# This file was created"):
        return rows
    return rows[next((number for number, row in enumerate(rows) if row[:1] != b"#"), 0) :]


def _same_head_bytes(first: TrajectoryPiece, piece: TrajectoryPiece) -> int:
    """Return the length of an energy file's head, which names its energies; raise CheckpointError if these differ."""
    heads = [energy_head(each.path) for each in (first, piece)]
    if heads[0] != heads[1]:
        raise CheckpointError(f"{piece.path}: has other energies than {first.path}; join by hand with gmx eneconv")
    return len(heads[1])


def energy_head(path: Path) -> bytes:
    """Return the bytes of an energy file before its first frame [GROMACS, src/gromacs/fileio/enxio.cpp]."""
    with path.open("rb") as file:
        data = file.read(_LONGEST_HEAD)
    if (magic := int.from_bytes(data[:4], "big", signed=True)) != _ENERGY_MAGIC:
        raise CheckpointError(f"{path}: not an energy file (begins with {magic})")
    return data[: min((at for mark in _ENERGY_FRAMES if (at := data.find(mark)) >= 0), default=len(data))]
