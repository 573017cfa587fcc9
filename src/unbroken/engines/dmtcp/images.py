"""Compress images if there is time: DMTCP reads gzip by itself."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

# gzip at its quickest, on a slow core; measured figures are in docs/engines/dmtcp.md.
BYTES_PER_SECOND = 30e6
_LEVEL = 1
_BLOCK = 1 << 20
_GZIP = b"\x1f\x8b"


def images_in(folder: Path) -> list[Path]:
    """Return the images of a checkpoint, one for each process."""
    return sorted(folder.glob("ckpt_*.dmtcp"))


def compress(folder: Path, left_seconds: float) -> int:
    """Compress the images that fit into the time left; return how many."""
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


def _is_compressed(image: Path) -> bool:
    with image.open("rb") as file:
        return file.read(len(_GZIP)) == _GZIP
