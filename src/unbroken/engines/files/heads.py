"""Read the heads of formats that count their frames there and only grow after it: DCD and netCDF-3.

A program that was killed may have counted frames that it wrote after its last save, or one that is not complete.

DCD: 4 bytes of length, `CORD`, the number of frames [VMD, plugins/molfile_plugin/src/dcdplugin.c].
netCDF-3: `CDF`, a version byte, the number of records [Unidata, NetCDF Classic Format Specification].
"""

from __future__ import annotations

import math
import struct

_DCD_BYTES = 276  # with two lines of title, as most programs write it
_NETCDF_BYTES = 8
_DCD = struct.pack("<i", 84) + b"CORD"
_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8}


def counting_bytes(begin: bytes) -> int:
    """Return how many bytes at the beginning of a file are a head that counts; 0 for any other format."""
    if begin[4:8] == b"CORD" and len(begin) >= _DCD_BYTES:
        return _DCD_BYTES
    return _NETCDF_BYTES if begin[:4] in (b"CDF\x01", b"CDF\x02") and len(begin) >= _NETCDF_BYTES else 0


def head_at(begin: bytes, length: int) -> bytes:
    """Return the head that counts as it was when the file had a length; `begin` are its first bytes now."""
    head = begin[: counting_bytes(begin)]
    if head.startswith(_DCD):
        return _dcd_head(head, length)
    if head.startswith(b"CDF"):
        (records,) = struct.unpack_from(">I", head, 4)
        then = _netcdf_records(begin, length)
        return head if then is None or then >= records or records == 0xFFFFFFFF else head[:4] + struct.pack(">I", then)
    return head


def _dcd_head(head: bytes, length: int) -> bytes:
    """Return the head with the frames of that length; as it is for fixed atoms, whose frames have two lengths."""
    frames, first, interval, last = struct.unpack_from("<4i", head, 8)
    fixed, has_cell, atoms = (struct.unpack_from("<i", head, at)[0] for at in (40, 48, 268))
    then, rest = divmod(length - len(head), 3 * (4 * atoms + 8) + (56 if has_cell else 0))
    if fixed or rest or then >= frames:
        return head
    return head[:8] + struct.pack("<4i", then, first, interval, last - (frames - then) * interval) + head[24:]


# --- netCDF-3 ---


def _netcdf_records(begin: bytes, length: int) -> int | None:
    """Return how many records a file of that length has; None if its head does not say where they lie."""
    try:
        starts, size = _Netcdf(begin).records()
    except (struct.error, KeyError, IndexError):
        return None
    return max(0, length - min(starts)) // size if starts and size else None


class _Netcdf:
    """Read the lists of dimensions, attributes and variables, one after the other."""

    def __init__(self, begin: bytes) -> None:
        self._begin, self._at = begin, 8
        self._offset = ">I" if begin[3] == 1 else ">Q"

    def records(self) -> tuple[list[int], int]:
        """Return where the parts of the first record begin, and the bytes of a record."""
        lengths = [self._dimension() for _ in range(self._count())]
        self._attributes()
        parts = [each for _ in range(self._count()) if (each := self._variable(lengths)) is not None]
        padded = sum(size for _, size, _ in parts)
        return [start for start, _, _ in parts], parts[0][2] if len(parts) == 1 else padded

    def _dimension(self) -> int:
        self._named()
        return self._number()

    def _variable(self, lengths: list[int]) -> tuple[int, int, int] | None:
        """Return where a variable begins, and its bytes in a record with and without padding; None without records."""
        self._named()
        dimensions = [lengths[self._number()] for _ in range(self._number())]
        self._attributes()
        kind, size, start = self._number(), self._number(), self._number(self._offset)
        if not dimensions or dimensions[0] != 0:
            return None
        return start, size, _TYPE_BYTES[kind] * math.prod(dimensions[1:])

    def _attributes(self) -> None:
        for _ in range(self._count()):
            self._named()
            size = _TYPE_BYTES[self._number()]
            self._skip(size * self._number())

    def _count(self) -> int:
        """Return the number of elements of a list, after its kind."""
        self._number()
        return self._number()

    def _named(self) -> None:
        self._skip(self._number())

    def _skip(self, count: int) -> None:
        self._at += count + -count % 4

    def _number(self, how: str = ">I") -> int:
        (found,) = struct.unpack_from(how, self._begin, self._at)
        self._at += struct.calcsize(how)
        return int(found)
