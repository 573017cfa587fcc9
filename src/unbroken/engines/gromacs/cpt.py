"""Reads GROMACS's checkpoint files (`.cpt`): step, time, and how much of each output file belongs to that moment.

The layout is that of GROMACS's own `do_cpt_header` and `do_cpt_files` (src/gromacs/fileio/checkpoint.cpp): XDR, from
file version 14 (2013) on.  Read here and not by `gmx dump`, because it is asked again and again while mdrun runs.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.gromacs.xdr import LONGEST_TEXT, Xdr
from unbroken.errors import CheckpointError

_MAGIC_FIRST, _MAGIC_LAST = 171817, 171819
_OLDEST_VERSION = 14
# The list of files stands at the very end, behind the atoms.
_TAIL_BYTES = 256 * 1024
_MOST_OUTPUTS = 64
_UNCHECKED = -1
_MOST_CHECKED_BYTES = 1024 * 1024  # GROMACS, src/gromacs/fileio/gmxfio.cpp, gmx_fio_int_get_file_md5


@dataclass(frozen=True)
class OutputPosition:
    """An output file of mdrun as a checkpoint knows it: so many bytes of it belong to the checkpoint's moment."""

    name: str
    size_bytes: int
    checked_bytes: int  # the md5 is of the last so many bytes; _UNCHECKED of a file that mdrun cannot read back
    md5: str


@dataclass(frozen=True)
class Cpt:
    """What a checkpoint file says of itself."""

    path: Path
    program: str
    atoms: int
    part: int
    step: int
    time_ps: float
    outputs: tuple[OutputPosition, ...]


def read_cpt(path: Path) -> Cpt:
    """The header and the list of output files; CheckpointError if the file is torn, or no checkpoint of GROMACS."""
    try:
        with path.open("rb") as file:
            head = file.read(16 * LONGEST_TEXT)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            tail = file.read()
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    try:
        return _parsed(path, Xdr(head), tail)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise CheckpointError(f"{path}: torn, or not a checkpoint of GROMACS ({error})") from error


def verify_outputs(cpt: Cpt, folder: Path) -> None:
    """Compares the output files with the checkpoint as mdrun does; CheckpointError names the first that differs."""
    for output in cpt.outputs:
        path = folder / output.name
        if output.checked_bytes == _UNCHECKED:
            _verify_size(path, output, cpt)
            continue
        try:
            with path.open("rb") as file:
                file.seek(output.size_bytes - output.checked_bytes)
                found = file.read(output.checked_bytes)
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror}") from error
        if len(found) < output.checked_bytes:
            raise CheckpointError(f"{path}: {path.stat().st_size} bytes, {cpt.path.name} needs {output.size_bytes}")
        if hashlib.md5(found, usedforsecurity=False).hexdigest() != output.md5:
            raise CheckpointError(f"{path}: not the bytes that {cpt.path.name} was written with (md5)")


def _verify_size(path: Path, output: OutputPosition, cpt: Cpt) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    if size < output.size_bytes:
        raise CheckpointError(f"{path}: {size} bytes, {cpt.path.name} needs {output.size_bytes}")


def _parsed(path: Path, xdr: Xdr, tail: bytes) -> Cpt:
    if (first := xdr.integer()) != _MAGIC_FIRST:
        raise ValueError(f"begins with {first}, not {_MAGIC_FIRST}")
    if (last := Xdr(tail, len(tail) - 4).integer()) != _MAGIC_LAST:
        raise ValueError(f"ends with {last}, not {_MAGIC_LAST}")
    program, *_ = [xdr.text() for _ in range(6)]  # then three unused texts, the command and the time
    if (version := xdr.integer()) < _OLDEST_VERSION:
        raise ValueError(f"file version {version}, {_OLDEST_VERSION} or later is needed")
    xdr.integer()  # is it of double precision
    xdr.text()  # host
    atoms = xdr.integer()
    for _ in range(5):  # coupling groups, chains, lambda states, integrator
        xdr.integer()
    part, step, time_ps = xdr.integer(), xdr.long(), xdr.double()
    return Cpt(path, program, atoms, part, step, time_ps, _outputs(tail, part))


def _outputs(tail: bytes, part: int) -> tuple[OutputPosition, ...]:
    """The list is found by the name of its first file, which has the number of this part in it.

    An mdrun that appends has no such number: then it is what can be read as a list of files.
    """
    found = tail.find(f".part{part:04d}.".encode())
    if found < 0:
        return _outputs_without_part(tail)
    start = found
    while start > 0 and not _is_length_before(tail, start):
        start -= 1
    xdr = Xdr(tail, start - 8)
    return tuple(_output(xdr) for _ in range(xdr.integer()))


def _outputs_without_part(tail: bytes) -> tuple[OutputPosition, ...]:
    """The first place at which a list of files can be read; all is aligned to four bytes from the end on."""
    for start in range(len(tail) % 4, len(tail) - 8, 4):
        count, length = struct.unpack_from(">ii", tail, start)
        if 0 < count <= _MOST_OUTPUTS and 0 < length <= LONGEST_TEXT:
            xdr = Xdr(tail, start + 4)
            try:
                found = tuple(_output(xdr) for _ in range(count))
            except (struct.error, UnicodeDecodeError, ValueError):
                continue
            if all(map(_is_sound, found)):
                return found
    raise ValueError("names no output files")


def _is_sound(output: OutputPosition) -> bool:
    """mdrun notes the md5 of the last megabyte at most, and names its files with an ending."""
    is_name = output.name.isascii() and output.name.isprintable() and "." in output.name
    is_checked = 0 <= output.checked_bytes <= min(output.size_bytes, _MOST_CHECKED_BYTES)
    is_unchecked = output.checked_bytes == _UNCHECKED and output.size_bytes >= 0
    return is_name and (is_checked or is_unchecked)


def _is_length_before(tail: bytes, start: int) -> bool:
    """True where a text begins: behind its length, which is followed by printable signs alone."""
    if start < 8:
        return False
    length = Xdr(tail, start - 4).integer()
    text = tail[start : start + length]
    return 0 < length <= LONGEST_TEXT and len(text) == length and text.isascii() and text.decode().isprintable()


def _output(xdr: Xdr) -> OutputPosition:
    name = xdr.text()
    high, low, checked = xdr.integer(), xdr.integer(), xdr.integer()
    md5 = bytes(xdr.integer() & 0xFF for _ in range(16))
    return OutputPosition(name, (high << 32) | (low & 0xFFFFFFFF), checked, md5.hex())
