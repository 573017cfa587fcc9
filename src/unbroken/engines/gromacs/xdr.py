"""Reads XDR, the format of RFC 4506, in which GROMACS writes its binary files."""

from __future__ import annotations

import struct

LONGEST_TEXT = 1024


class Xdr:
    """Reads from a place in some bytes on; ValueError or struct.error where they are not what is asked for."""

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
        if not 0 <= length <= LONGEST_TEXT:
            raise ValueError(f"a text of {length} bytes")
        found = self.data[self.at : self.at + length]
        self.at += (length + 3) // 4 * 4
        return found.decode()

    def _take(self, kind: str) -> float:
        (value,) = struct.unpack_from(kind, self.data, self.at)
        self.at += struct.calcsize(kind)
        return value  # type: ignore[no-any-return]
