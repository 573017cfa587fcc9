"""Joins the pieces that the segments left: one trajectory, one energy file, one log, one structure.

Of each piece only those bytes are taken that its checkpoint counted, because the next piece begins right there, as with
mdrun's own appending.  So the joined trajectory is that of one uninterrupted mdrun, byte for byte where the simulation
is exact, and so is each energy in the energy file; the sums beside them begin anew with each part, as mdrun wrote them.
`gmx trjcat` gives the same bytes, but unpacks and packs each frame; `gmx eneconv` rounds times to single precision.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from string import digits
from typing import BinaryIO

from unbroken.engines.gromacs.join_others import join_others
from unbroken.engines.gromacs.outputs import ROTATION_LOGS, STEM, is_table
from unbroken.engines.gromacs.parts import offsets_of, parts_of
from unbroken.engines.gromacs.rotation import is_reference
from unbroken.engines.gromacs.settings import ALONE
from unbroken.engines.gromacs.xdr import Xdr
from unbroken.errors import CheckpointError
from unbroken.runs.checkpoint import Checkpoint, verified_parts
from unbroken.runs.select import ancestors
from unbroken.runs.store import Store
from unbroken.system.copying import append_range

SEGMENTS_TABLE = "segments.tsv"
_ENERGY_MAGIC = -55555
# A few hundred names and units.
_LONGEST_HEAD = 1024 * 1024


@dataclass(frozen=True)
class TrajectoryPiece:
    """One file of one part, and how many of its bytes count."""

    path: Path
    size_bytes: int

    @property
    def kind(self) -> str:
        """What it is joined with: `.xtc` of md.part0001.xtc, `_pullx.xvg` of md.part0001_pullx.xvg."""
        stem, _, rest = self.path.name.partition(".part")
        return stem.removeprefix(STEM) + rest.lstrip(digits)

    @property
    def part(self) -> int:
        """The number of its part."""
        rest = self.path.name.partition(".part")[2]
        return int(rest.removesuffix(rest.lstrip(digits)) or 0)


def join(checkpoint: Checkpoint, final: Path, replicas: Sequence[str] = (ALONE,)) -> None:
    """Fills `final` with the joined results up to a checkpoint; CheckpointError names a piece that is not whole.

    Each replica has a folder of its own.

    The last part counts to its end, later than its checkpoint, if the simulation ended with it.
    """
    line = ancestors(Store(checkpoint.folder.parent), checkpoint)
    for each in line:
        verified_parts(each)
    (final / SEGMENTS_TABLE).write_text(segments_table(line))
    for replica in replicas:
        (final / replica).mkdir(exist_ok=True)
        _join_simulation(line, final / replica, replica)


def _join_simulation(line: Sequence[Checkpoint], final: Path, replica: str) -> None:
    pieces = counted_pieces(line, replica)
    for kind in sorted({piece.kind for piece in pieces if piece.size_bytes}):
        same = [piece for piece in pieces if piece.kind == kind and piece.size_bytes]
        _join_kind(kind, same, final / f"{STEM}{kind}")
    join_others(line, final, replica)


def segments_table(line: Sequence[Checkpoint]) -> str:
    """A row a part: which segment made it and where in the simulation it ends, tab-separated."""
    rows = ["segment\tend_step\tend_ps\thost\tthreads\tcheckpoint"]
    for each in line:
        passport = each.passport
        words = (passport.host.get("name", ""), passport.identity_parts.get("threads", ""), each.name)
        end = passport.progress.metrics.get("time_ps", "")
        rows.append("\t".join(map(str, (passport.segment, int(passport.progress.done), end, *words))))
    return "\n".join(rows) + "\n"


def counted_pieces(line: Sequence[Checkpoint], replica: str = ALONE) -> list[TrajectoryPiece]:
    """The pieces of an ancestry in order, each with the bytes that the last checkpoint on it counts.

    A checkpoint may lie beside its pieces, or count more bytes of those of the checkpoint before.
    """
    found: dict[str, TrajectoryPiece] = {}
    for each in line:
        parts = parts_of(each.folder, replica)
        offsets = offsets_of(parts)
        found.update({path.name: TrajectoryPiece(path, path.stat().st_size) for path in sorted(parts.iterdir())})
        is_end = each is line[-1] and each.passport.is_finished
        for name, counted in offsets.items():
            found[name] = _counted(found, name, None if is_end else counted, each)
        if not is_end:
            found = {name: piece for name, piece in found.items() if piece.path.suffix != ".gro"}
        found = {name: piece for name, piece in found.items() if ".part" in name}
    return list(found.values())


def _counted(
    found: dict[str, TrajectoryPiece], name: str, counted: int | None, checkpoint: Checkpoint
) -> TrajectoryPiece:
    if name not in found:
        raise CheckpointError(f"{checkpoint.folder}: its checkpoint counts {name}, which is in none of those before")
    piece = found[name]
    size = piece.path.stat().st_size
    if counted is not None and counted > size:
        raise CheckpointError(f"{piece.path}: {size} bytes, {checkpoint.name} counts {counted}")
    return TrajectoryPiece(piece.path, size if counted is None else counted)


def _join_kind(kind: str, pieces: Sequence[TrajectoryPiece], target: Path) -> None:
    for earlier, later in pairwise(pieces):
        if earlier.part >= later.part:
            names = f"{earlier.path.name} and {later.path.name}"
            raise CheckpointError(
                f"{later.path.parent}: {names} would become one table, {target.name}; nothing was joined; join by hand"
            )
    with target.open("wb") as joined:
        for number, piece in enumerate(pieces):
            if is_table(kind):
                _append_table(piece, joined, pieces[number - 1] if number else None)
            else:
                skipped = _same_head_bytes(pieces[0], piece) if kind == ".edr" and number else 0
                append_range(piece.path, joined, skipped, piece.size_bytes)


def _append_table(piece: TrajectoryPiece, joined: BinaryIO, before: TrajectoryPiece | None) -> None:
    """The rows of a table of numbers; the head of the first one serves for all, and a row that comes again is left out.

    mdrun prints some tables, such as an electric field, before it writes the checkpoint of a step, and again when it
    resumes there.
    """
    rows = _rows(piece)
    if before is None:
        joined.writelines(_without_origin(rows))
        return
    rows = [row for row in rows if row[:1] not in b"#@" and not (piece.kind in ROTATION_LOGS and is_reference(row))]
    last = next((row for row in reversed(_rows(before)) if row[:1] not in b"#@"), None)
    joined.writelines(rows[1:] if rows and rows[0] == last else rows)


def _without_origin(rows: list[bytes]) -> list[bytes]:
    """The rows without the date, the folder and the command line, which are those of the first part alone."""
    if not rows or not rows[0].startswith(b"# This file was created"):
        return rows
    return rows[next((number for number, row in enumerate(rows) if row[:1] != b"#"), 0) :]


def _rows(piece: TrajectoryPiece) -> list[bytes]:
    return piece.path.read_bytes()[: piece.size_bytes].splitlines(keepends=True)


def _same_head_bytes(first: TrajectoryPiece, piece: TrajectoryPiece) -> int:
    """The length of the head of an energy file, which names its energies; CheckpointError if the first names others."""
    heads = [energy_head(each.path) for each in (first, piece)]
    if heads[0] != heads[1]:
        raise CheckpointError(f"{piece.path}: has other energies than {first.path}; join by hand with gmx eneconv")
    return len(heads[1])


def energy_head(path: Path) -> bytes:
    """The bytes of an energy file before its first frame [GROMACS, src/gromacs/fileio/enxio.cpp, do_enxnms]."""
    with path.open("rb") as file:
        data = file.read(_LONGEST_HEAD)
    xdr = Xdr(data)
    try:
        magic, _version, names = xdr.integer(), xdr.integer(), xdr.integer()
        for _ in range(2 * names):  # each with its unit
            xdr.text()
    except (struct.error, ValueError) as error:
        raise CheckpointError(f"{path}: not an energy file ({error})") from error
    if magic != _ENERGY_MAGIC:
        raise CheckpointError(f"{path}: not an energy file (begins with {magic})")
    return data[: xdr.at]
