"""Images made smaller, if there is time: DMTCP reads gzip by itself, but must not be the one who writes it."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

from unbroken.engines.dmtcp.session import images_in

# gzip at its quickest, on a slow core; measured figures stand in docs/engines/dmtcp.md.
BYTES_PER_SECOND = 30e6
_LEVEL = 1
_BLOCK = 1 << 20


def compress(folder: Path, left_seconds: float) -> int:
    """Compresses the images that can be done in time; how many."""
    done = 0
    for image in images_in(folder):
        seconds = image.stat().st_size / BYTES_PER_SECOND
        if seconds > left_seconds:
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
