"""Read GROMACS's checkpoint files (`.cpt`): step, time, and how much of each output file belongs to that moment.

The layout is that of GROMACS's own `do_cpt_header` and `do_cpt_files` (src/gromacs/fileio/checkpoint.cpp): XDR
(RFC 4506), from file version 14 (2013) on.  Not by `gmx dump`: it may be read again and again while mdrun runs.
The head of an energy file (`.edr`) is XDR too (src/gromacs/fileio/enxio.cpp).
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbroken.errors import CheckpointError

_MAGIC_FIRST, _MAGIC_LAST = 171817, 171819
_OLDEST_VERSION = 14
_LONGEST_TEXT = 1024
# The list of files is at the very end, after the atoms.
_TAIL_BYTES = 256 * 1024
# Its beginning: how many files, at most 64, and the first name after its length.
_FILES = re.compile(rb"\0\0\0[\1-\x40](?=\0\0[\0-\4].[!-~])", re.DOTALL)
_UNCHECKED = -1
_ENERGY_MAGIC = -55555
# A few hundred names and units.
_LONGEST_ENERGY_HEAD = 1024 * 1024
_MOST_CHECKED_BYTES = 1024 * 1024  # GROMACS, src/gromacs/fileio/gmxfio.cpp, gmx_fio_int_get_file_md5


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
        return _parsed(path, head, tail)
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


def energy_head(path: Path) -> tuple[list[str], int]:
    """Return the names of all energies in an energy file, and the length of its head, which ends with them."""
    with path.open("rb") as file:
        xdr = _Xdr(file.read(_LONGEST_ENERGY_HEAD))
    try:
        magic, _version, count = xdr.take("3i")
        if magic != _ENERGY_MAGIC:
            raise ValueError(f"begins with {magic}")
        names = [(xdr.text(), xdr.text())[0] for _ in range(count)]  # each with its unit
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise CheckpointError(f"{path}: not an energy file ({error})") from error
    return names, xdr.at


class _Xdr:
    """Read from a place in some bytes on; raise ValueError or struct.error for other bytes."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data, self.at = data, at

    def take(self, kinds: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f">{kinds}", self._data, self.at)
        self.at += struct.calcsize(f">{kinds}")
        return found

    def text(self) -> str:
        (length,) = self.take("i")
        if not 0 <= length <= _LONGEST_TEXT:
            raise ValueError(f"a text of {length} bytes")
        found = self._data[self.at : self.at + length]
        self.at += (length + 3) // 4 * 4
        return found.decode()


def _parsed(path: Path, head: bytes, tail: bytes) -> Cpt:
    xdr = _Xdr(head)
    (first,), (last,) = xdr.take("i"), _Xdr(tail, len(tail) - 4).take("i")
    if (first, last) != (_MAGIC_FIRST, _MAGIC_LAST):
        raise ValueError(f"begins with {first}, ends with {last}, not {_MAGIC_FIRST} and {_MAGIC_LAST}")
    program, *_ = [xdr.text() for _ in range(6)]  # then three unused texts, the command and the time
    version, _is_double = xdr.take("2i")
    if version < _OLDEST_VERSION:
        raise ValueError(f"file version {version}, {_OLDEST_VERSION} or later is needed")
    xdr.text()  # host
    # After the atoms: coupling groups, chains, lambda states, integrator.
    atoms, *_, part, step, time_ps = xdr.take("7iqd")
    return Cpt(path, program, atoms, part, step, time_ps, _outputs(tail))


def _outputs(tail: bytes) -> tuple[OutputPosition, ...]:
    """Return the first list of files that can be read; all is aligned to four bytes from the end on."""
    for match in _FILES.finditer(tail):
        if (len(tail) - match.start()) % 4 == 0:
            xdr = _Xdr(tail, match.start())
            try:
                (count,) = xdr.take("i")
                return tuple(_output(xdr) for _ in range(count))
            except (struct.error, UnicodeDecodeError, ValueError):
                continue
    raise ValueError("names no output files")


def _output(xdr: _Xdr) -> OutputPosition:
    """Return a file with its md5 of the last megabyte at most; raise ValueError for what mdrun would not note."""
    name = xdr.text()
    size, checked, *md5 = xdr.take("qi16i")
    is_name = name.isascii() and name.isprintable() and "." in name
    is_checked = 0 <= checked <= min(size, _MOST_CHECKED_BYTES)
    if not is_name or size < 0 or not (is_checked or checked == _UNCHECKED):
        raise ValueError(f"a file called {name!r} of {size} bytes")
    return OutputPosition(name, size, checked, bytes(byte & 0xFF for byte in md5).hex())
