"""Images as files: made smaller, if there is time; and read, as far as it tells whether they are whole.

DMTCP reads gzip by itself.  By default it also writes it, by a process that nobody waits for.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

from unbroken.errors import CheckpointError

# gzip at its quickest, on a slow core; measured figures stand in docs/engines/dmtcp.md.
BYTES_PER_SECOND = 30e6
_LEVEL = 1
_BLOCK = 1 << 20
_GZIP = b"\x1f\x8b"
_HEAD = b"DMTCP_CHECKPOINT_IMAGE_v"
# Behind the last area of memory: a header without address, of the size -1 [DMTCP 3.2.0 to 4.2.0, src/writeckpt.cpp].
_MARK_BYTES = 4096
_NOWHERE, _SIZE = slice(0, 8), slice(16, 24)
# As C keeps text.
_PATH = re.compile(rb"(/[^\x00-\x1f\x7f]{1,1023})\x00")
_LONGEST_PATH = 1026


def images_in(folder: Path) -> list[Path]:
    """The images of a checkpoint, one a process."""
    return sorted(folder.glob("ckpt_*.dmtcp"))


def compress(folder: Path, left_seconds: float) -> int:
    """Compresses the images that can be done in time; how many."""
    done = 0
    for image in images_in(folder):
        seconds = image.stat().st_size / BYTES_PER_SECOND
        if seconds > left_seconds or _is_compressed(image):
            continue
        left_seconds -= seconds
        _compress(image)
        done += 1
    return done


def _compress(image: Path) -> None:
    draft = image.with_suffix(".gz")
    with image.open("rb") as source, gzip.open(draft, "wb", compresslevel=_LEVEL) as target:
        shutil.copyfileobj(source, target, _BLOCK)
    os.replace(draft, image)


def is_whole(image: Path) -> bool:
    """True if all of it is there: DMTCP waits for ever at one that is cut short."""
    try:
        for _ in _blocks(image):
            pass
    except CheckpointError:
        return False
    return True


def paths_in(image: Path) -> set[str]:
    """All whole paths in the memory of its process; CheckpointError if the image is not whole, or none of DMTCP's."""
    found, rest = set[bytes](), b""
    for block in _blocks(image):
        text = rest + block
        found |= {match[1] for match in _PATH.finditer(text)}
        rest = text[-_LONGEST_PATH:]
    return {os.fsdecode(path) for path in found}


def _blocks(image: Path) -> Iterator[bytes]:
    """Of what it holds, uncompressed."""
    rest, is_first = b"", True
    try:
        with gzip.open(image) if _is_compressed(image) else image.open("rb") as file:
            while block := file.read(_BLOCK):
                if is_first and not block.startswith(_HEAD):
                    raise CheckpointError(f"{image}: not an image of DMTCP")
                is_first = False
                rest = (rest + block)[-_MARK_BYTES:]
                yield block
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CheckpointError(f"{image}: cut short or damaged ({error})") from error
    if rest[_NOWHERE] != bytes(8) or rest[_SIZE] != b"\xff" * 8:
        raise CheckpointError(f"{image}: cut short: DMTCP's end mark is not there")


def _is_compressed(image: Path) -> bool:
    with image.open("rb") as file:
        return file.read(len(_GZIP)) == _GZIP
