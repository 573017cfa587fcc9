"""Join the pieces that the segments left: one trajectory, one energy file, one log, one structure.

Of each piece only those bytes are taken that its checkpoint counted, because the next piece begins right there, as with
mdrun's own appending.  So the joined trajectory is that of one uninterrupted mdrun, byte for byte where the simulation
is exact, and so is each energy in the energy file; the sums next to them restart with each part, as mdrun wrote them.
`gmx trjcat` gives the same bytes, but unpacks and packs each frame; `gmx eneconv` rounds times to single precision.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from unbroken.engines.gromacs.command import ALONE
from unbroken.engines.gromacs.cpt import energy_head
from unbroken.engines.gromacs.mdrun_line import STEM
from unbroken.engines.gromacs.others import collect_others
from unbroken.engines.gromacs.pieces import offsets_of
from unbroken.errors import CheckpointError
from unbroken.store.checkpoint import PARTS, Checkpoint, verified_parts, verify_files
from unbroken.store.checkpoints import Store
from unbroken.store.select import ancestors
from unbroken.system.copying import append_range

SEGMENTS_TABLE = "segments.tsv"
_PART = re.compile(r"\.part\d+")


@dataclass(frozen=True)
class Piece:
    """Describe one file of one part, and how many of its bytes count."""

    path: Path
    size_bytes: int

    @property
    def kind(self) -> str:
        """Return the end of the name that it is joined with: `_pullx.xvg` of md_pullx.part0001.xvg."""
        return _PART.sub("", self.path.name).removeprefix(STEM)


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
            _join_kind([piece for piece in pieces if piece.kind == kind], final / replica / f"{STEM}{kind}")
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


def counted_pieces(line: Sequence[Checkpoint], replica: str = ALONE) -> list[Piece]:
    """Return the pieces of an ancestry in order, each with the bytes that the last checkpoint on it counts.

    A checkpoint may lie next to its pieces, or count more bytes of those of the checkpoint before.
    """
    found: dict[str, Piece] = {}
    for each in line:
        parts = each.folder / PARTS / replica
        paths = [path for path in sorted(parts.iterdir()) if _PART.search(path.name)]
        found.update({path.name: Piece(path, path.stat().st_size) for path in paths})
        is_end = each is line[-1] and each.passport.is_finished
        for name, counted in offsets_of(parts).items():
            if name not in found:
                what = f"its checkpoint counts {name}, which is in none of those before"
                raise CheckpointError(f"{each.folder}: {what}")
            path = found[name].path
            if not is_end and counted > (size := path.stat().st_size):
                raise CheckpointError(f"{path}: {size} bytes, {each.name} counts {counted}")
            found[name] = Piece(path, path.stat().st_size if is_end else counted)
        if not is_end:
            found = {name: piece for name, piece in found.items() if piece.path.suffix != ".gro"}
    return list(found.values())


def _join_kind(pieces: Sequence[Piece], target: Path) -> None:
    """Join pieces of one kind; raise CheckpointError if two have other energies."""
    with target.open("wb") as joined:
        for number, piece in enumerate(pieces):
            if piece.path.suffix == ".xvg":
                _append_table(piece, joined, pieces[number - 1] if number else None)
            else:
                head_bytes = _head_bytes(pieces[0], piece) if piece.path.suffix == ".edr" and number else 0
                append_range(piece.path, joined, head_bytes, piece.size_bytes)


def _append_table(piece: Piece, joined: BinaryIO, before: Piece | None) -> None:
    """Append the rows of a table of numbers; the head of the first one serves for all, and no row comes twice.

    mdrun prints some tables before it writes the checkpoint of a step, and again when it resumes there.  The date, the
    folder and the command line in the head are those of the first part alone, and are left out.
    """
    if before is None:
        lines = piece.path.read_bytes()[: piece.size_bytes].splitlines(keepends=True)
        is_dated = lines and lines[0].startswith(b"# This file was created")
        end = next((number for number, line in enumerate(lines) if line[:1] != b"#"), 0) if is_dated else 0
        joined.writelines(lines[end:])
        return
    rows, printed = _rows_of(piece), _rows_of(before)
    joined.writelines(rows[1 if rows and printed and rows[0] == printed[-1] else 0 :])


def _rows_of(piece: Piece) -> list[bytes]:
    lines = piece.path.read_bytes()[: piece.size_bytes].splitlines(keepends=True)
    return [line for line in lines if line.strip() and line[:1] not in b"#@&"]


def _head_bytes(first: Piece, piece: Piece) -> int:
    """Return the length of an energy file's head, which names its energies; raise CheckpointError if these differ."""
    (names, head_bytes), (first_names, _) = energy_head(piece.path), energy_head(first.path)
    if names != first_names:
        raise CheckpointError(f"{piece.path}: has other energies than {first.path}; join by hand with gmx eneconv")
    return head_bytes
