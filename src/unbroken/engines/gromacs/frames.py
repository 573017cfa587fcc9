"""Find the frames of a trajectory: where each begins, its step and its time; nothing is unpacked.

The heads of frames as GROMACS writes them [src/gromacs/fileio/xtcio.cpp, trrio.cpp; libxdrf.cpp].
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from unbroken.errors import CheckpointError

TRAJECTORIES = (".xtc", ".trr")
_XTC_MAGIC, _XTC_LONG_MAGIC, _TRR_MAGIC = 1995, 2023, 1993
# So few atoms are not packed.
_FEW_ATOMS = 9
_XTC_HEAD = struct.Struct(">3if9fi")  # magic, atoms, step, time, box, atoms
_XTC_PACKING = struct.Struct(">f7i")  # precision, smallest and largest integers, how small
_TRR_HEAD = struct.Struct(">13i")
_LONGEST_VERSION = 64


@dataclass(frozen=True)
class Frame:
    """Describe a frame; numbers begin with 1, times are in picoseconds."""

    number: int
    begin: int
    step: int
    time_ps: float

    def describe(self) -> str:
        """Return `frame 12 (step 600, 1.2 ps)`."""
        return f"frame {self.number} (step {self.step}, {self.time_ps:.6g} ps)"


def frame_at(path: Path, offset_bytes: int) -> Frame | None:
    """Return the frame with a byte of a `.xtc` or `.trr`; None if the file is none, or is torn before it."""
    found = None
    for frame in frames(path):
        if frame.begin > offset_bytes:
            break
        found = frame
    return found


def bytes_before(path: Path, step: int) -> int:
    """Return where the first frame of a step, or a later one, begins; raise CheckpointError if that is unknown."""
    found, size = list(frames(path)), path.stat().st_size
    if size and not found:
        raise CheckpointError(f"{path}: no {path.suffix} of mdrun")
    if any(later.step <= earlier.step for earlier, later in pairwise(found)):
        raise CheckpointError(f"{path}: its steps do not count up")
    return next((frame.begin for frame in found if frame.step >= step), size)


def frames(path: Path) -> Iterator[Frame]:
    """Yield all frames with a complete head, in order; none of a file of another kind."""
    begin, number = 0, 0
    with path.open("rb") as file:
        size = file.seek(0, 2)
        while begin < size:
            file.seek(begin)
            try:
                step, time_ps, length = _head(file)
            except (struct.error, ValueError):
                return
            number += 1
            yield Frame(number, begin, step, time_ps)
            begin += length


def _head(file: BinaryIO) -> tuple[int, float, int]:
    """Return step, time, and the length of the frame in bytes."""
    (magic,) = struct.unpack(">i", file.read(4))
    file.seek(-4, 1)
    if magic in (_XTC_MAGIC, _XTC_LONG_MAGIC):
        return _xtc_head(file, magic)
    if magic == _TRR_MAGIC:
        return _trr_head(file)
    raise ValueError(f"a file that begins with {magic}")


def _xtc_head(file: BinaryIO, magic: int) -> tuple[int, float, int]:
    _, atoms, step, time_ps, *_ = _XTC_HEAD.unpack(file.read(_XTC_HEAD.size))
    if atoms <= _FEW_ATOMS:
        return step, time_ps, _XTC_HEAD.size + 12 * atoms
    file.seek(_XTC_PACKING.size, 1)
    kind = struct.Struct(">q" if magic == _XTC_LONG_MAGIC else ">i")
    (packed,) = kind.unpack(file.read(kind.size))
    return step, time_ps, _XTC_HEAD.size + _XTC_PACKING.size + kind.size + (packed + 3) // 4 * 4


def _trr_head(file: BinaryIO) -> tuple[int, float, int]:
    begin = file.tell()
    _, _, length = struct.unpack(">3i", file.read(12))  # magic, the length of the version with and without its end
    if not 0 <= length <= _LONGEST_VERSION:
        raise ValueError(f"a version of {length} bytes")
    file.seek((length + 3) // 4 * 4, 1)
    *parts, atoms, step, _ = _TRR_HEAD.unpack(file.read(_TRR_HEAD.size))
    box, coordinates = parts[2], [part for part in parts[7:10] if part]
    width = box // 9 if box else (coordinates[0] // (3 * atoms) if coordinates and atoms else 4)
    kind = struct.Struct(">2d" if width == 8 else ">2f")
    time_ps, _ = kind.unpack(file.read(kind.size))
    return step, time_ps, file.tell() - begin + sum(parts)
