"""How many bytes of mdrun's files were written before a checkpoint: what is behind it the next part writes again.

A checkpoint says it of the files of its own part.  Of a part before, whose checkpoint is overwritten, the frames say
it, each of which begins with marks and its step [GROMACS, src/gromacs/fileio: xtcio.cpp, trrio.cpp, enxio.cpp].  In a
step mdrun writes the checkpoint first, so the frames of that step are behind it [mdlib/mdoutf.cpp].
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from unbroken.errors import CheckpointError

_XTC_MAGICS = (1995, 2023)
_TRR_HEAD = struct.pack(">iii", 1993, 13, 12) + b"GMX_trn_file"
_TRR_STEP_AT = len(_TRR_HEAD) + 11 * 4  # behind ten sizes and the number of atoms
_EDR_HEADS = (struct.pack(">fi", -2e10, -7777777), struct.pack(">di", -2e10, -7777777))
_WRITING = "Writing checkpoint, step"


@dataclass(frozen=True)
class Frame:
    """Where a frame begins, and of which step it is."""

    begin: int
    step: int


def bytes_before(path: Path, kind: str, step: int, time_ps: float, dt_ps: float) -> int:
    """Of a file of mdrun the bytes that were written before the checkpoint of a step.

    CheckpointError if that cannot be told.
    """
    if kind == ".log":
        return _of_log(path, step)
    if kind.endswith(".xvg"):
        return _of_table(path, time_ps - dt_ps / 2)
    frames = list(frames_of(path, kind))
    if any(later.step <= earlier.step for earlier, later in pairwise(frames)):
        raise CheckpointError(f"{path}: its steps do not count up")
    return next((frame.begin for frame in frames if frame.step >= step), path.stat().st_size)


def frames_of(path: Path, kind: str) -> Iterator[Frame]:
    """The frames of a trajectory or an energy file; CheckpointError if it begins with none."""
    if path.stat().st_size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        head, step_at, layout = _marks(path, kind, data)
        at = data.find(head)
        while at >= 0:
            if at + step_at + struct.calcsize(layout) > len(data):  # torn by a kill
                return
            yield Frame(at, int(struct.unpack_from(layout, data, at + step_at)[0]))
            at = data.find(head, at + len(head))


def _marks(path: Path, kind: str, data: mmap.mmap) -> tuple[bytes, int, str]:
    """How a frame of this file begins, and where its step stands."""
    if kind == ".xtc" and int.from_bytes(data[:4]) in _XTC_MAGICS:
        return bytes(data[:8]), 8, ">i"  # with the number of atoms
    if kind == ".trr" and data[: len(_TRR_HEAD)] == _TRR_HEAD:
        return _TRR_HEAD, _TRR_STEP_AT, ">i"
    if kind == ".edr":
        for head in _EDR_HEADS:
            if data.find(head) >= 0:
                return head, len(head) + 4 + 8, ">q"  # behind the version and the time
    raise CheckpointError(f"{path}: no {kind} of mdrun")


def _of_log(path: Path, step: int) -> int:
    counted, is_found = 0, False
    with path.open("rb") as file:
        for line in file:
            if is_found and line.strip():
                break
            counted += len(line)
            is_found = is_found or line.startswith(f"{_WRITING} {step} at".encode())
    if not is_found:
        raise CheckpointError(f"{path}: has no checkpoint of step {step}")
    return counted


def _of_table(path: Path, time_ps: float) -> int:
    counted = 0
    with path.open("rb") as file:
        for line in file:
            if line[:1] not in b"#@" and line.strip() and _number(line) > time_ps:
                return counted
            counted += len(line)
    return counted


def _number(line: bytes) -> float:
    try:
        return float(line.split()[0])
    except ValueError:  # a line that a kill has torn
        return float("inf")
