"""Copies parts of files, inside the file system where it can do that."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from unbroken.errors import CheckpointError
from unbroken.system import fs


def copy_head(source: Path, target: Path, size_bytes: int) -> None:
    """Copies the first bytes of a file; CheckpointError if it is shorter."""
    with target.open("wb") as new:
        append_range(source, new, 0, size_bytes)


def append_range(source: Path, target: BinaryIO, begin: int, end: int) -> None:
    """Copies these bytes behind what an open file holds; CheckpointError if the source has fewer."""
    target.flush()
    with source.open("rb") as old:
        old.seek(begin)
        left = end - begin
        while left > 0:
            done = fs.copy_range(old.fileno(), target.fileno(), left)
            if done == 0:
                raise CheckpointError(f"{source}: {end - left} bytes, {end} are needed")
            left -= done
