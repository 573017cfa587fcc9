"""Read GROMACS's checkpoint files (`.cpt`): step, time, and how much of each output file belongs to that moment.

The layout is that of GROMACS's own `do_cpt_header` and `do_cpt_files` (src/gromacs/fileio/checkpoint.cpp): XDR, from
file version 14 (2013) on.  Not by `gmx dump`: a test or a person may ask again and again while mdrun runs.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import CheckpointError

_MAGIC_FIRST, _MAGIC_LAST = 171817, 171819
_OLDEST_VERSION = 14
_LONGEST_TEXT = 1024
# The list of files is at the very end, after the atoms.
_TAIL_BYTES = 256 * 1024
# Its beginning: how many files, at most 64, and the first name after its length.
_FILES = re.compile(rb"\0\0\0[\1-\x40](?=\0\0[\0-\4].[!-~])", re.DOTALL)
_UNCHECKED = -1
_MOST_CHECKED_BYTES = 1024 * 1024  # GROMACS, src/gromacs/fileio/gmxfio.cpp, gmx_fio_int_get_file_md5


class Xdr:
    """Read XDR (RFC 4506) from a place in some bytes on; raise ValueError or struct.error for other bytes."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def integer(self) -> int:
        return int(self._take(">i"))

    def long(self) -> int:
        return int(self._take(">q"))

    def double(self) -> float:
        return float(self._take(">d"))

    def text(self) -> str:
        length = self.integer()
        if not 0 <= length <= _LONGEST_TEXT:
            raise ValueError(f"a text of {length} bytes")
        found = self.data[self.at : self.at + length]
        self.at += (length + 3) // 4 * 4
        return found.decode()

    def _take(self, kind: str) -> float:
        (value,) = struct.unpack_from(kind, self.data, self.at)
        self.at += struct.calcsize(kind)
        return value  # type: ignore[no-any-return]


@dataclass(frozen=True)
class OutputPosition:
    """Describe an output file of mdrun as a checkpoint knows it: so many bytes of it belong to the checkpoint."""

    name: str
    size_bytes: int
    checked_bytes: int  # the md5 is of the last so many bytes; _UNCHECKED of a file that mdrun cannot read back
    md5: str


@dataclass(frozen=True)
class Cpt:
    """Hold what a checkpoint file says of itself."""

    path: Path
    program: str
    atoms: int
    part: int
    step: int
    time_ps: float
    outputs: tuple[OutputPosition, ...]


def read_cpt(path: Path) -> Cpt:
    """Return the header and the list of output files; raise CheckpointError if the file is torn, or none of mdrun."""
    try:
        with path.open("rb") as file:
            head = file.read(16 * _LONGEST_TEXT)
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
    """Compare the output files with the checkpoint as mdrun does; raise CheckpointError for the first that differs."""
    for output in cpt.outputs:
        path, checked = folder / output.name, max(0, output.checked_bytes)
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, output.size_bytes - checked))
                found = file.read(checked)
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror}") from error
        if size < output.size_bytes:
            raise CheckpointError(f"{path}: {size} bytes, {cpt.path.name} needs {output.size_bytes}")
        if output.checked_bytes != _UNCHECKED and hashlib.md5(found, usedforsecurity=False).hexdigest() != output.md5:
            raise CheckpointError(f"{path}: not the bytes that {cpt.path.name} was written with (md5)")


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
    return Cpt(path, program, atoms, part, step, time_ps, _outputs(tail))


def _outputs(tail: bytes) -> tuple[OutputPosition, ...]:
    """Return the first list of files that can be read; all is aligned to four bytes from the end on."""
    for match in _FILES.finditer(tail):
        if (len(tail) - match.start()) % 4 == 0:
            xdr = Xdr(tail, match.start())
            try:
                found = tuple(_output(xdr) for _ in range(xdr.integer()))
            except (struct.error, UnicodeDecodeError, ValueError):
                continue
            if all(map(_is_sound, found)):
                return found
    raise ValueError("names no output files")


def _output(xdr: Xdr) -> OutputPosition:
    name = xdr.text()
    high, low, checked = xdr.integer(), xdr.integer(), xdr.integer()
    md5 = bytes(xdr.integer() & 0xFF for _ in range(16))
    return OutputPosition(name, (high << 32) | (low & 0xFFFFFFFF), checked, md5.hex())


def _is_sound(output: OutputPosition) -> bool:
    """Return True for a name with an ending, and an md5 of the last megabyte at most, as mdrun notes them."""
    is_name = output.name.isascii() and output.name.isprintable() and "." in output.name
    is_checked = 0 <= output.checked_bytes <= min(output.size_bytes, _MOST_CHECKED_BYTES)
    is_unchecked = output.checked_bytes == _UNCHECKED and output.size_bytes >= 0
    return is_name and (is_checked or is_unchecked)
