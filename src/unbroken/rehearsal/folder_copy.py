"""A copy of the user's folder for each piece, so that nothing that a piece leaves there is found by the next one.

Small files are copied, large ones and large folders are links.  What is ours, or hidden rubbish of tools, stays out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from unbroken.runs.layout import LOGS, RESULTS, STORES

LARGEST_COPY_BYTES = 16 * 1024 * 1024
MOST_FILES = 2000
MOST_BYTES = 256 * 1024 * 1024
_LEFT_OUT = {str(RESULTS), str(LOGS), str(STORES), ".snakemake", "__pycache__", ".mypy_cache"}
# A program may need them, and writes nothing there.
_LINKED = {".git", ".venv"}


@dataclass
class FolderCopy:
    """What was copied, and which paths, relative to the folder, are links to the user's own."""

    source: Path
    links: list[str]

    def make(self, target: Path) -> None:
        """Makes the copy anew."""
        self.links.clear()
        target.mkdir(parents=True)
        for entry in sorted(os.scandir(self.source), key=lambda entry: entry.name):
            if entry.name not in _LEFT_OUT:
                self._add(Path(entry.path), target / entry.name)

    def _add(self, source: Path, target: Path) -> None:
        if source.is_symlink() or source.name in _LINKED:
            # A relative one would lead elsewhere.
            target.symlink_to(source.resolve())
        elif source.is_dir():
            if _is_small(source):
                shutil.copytree(
                    source, target, ignore=_left_out, copy_function=self._copy, ignore_dangling_symlinks=True
                )
            else:
                self._link(source, target)
        elif source.is_file():
            self._copy(str(source), str(target))

    def _copy(self, source: str, target: str) -> None:
        if not os.path.isfile(source):  # a pipe, a socket
            return
        if os.path.getsize(source) > LARGEST_COPY_BYTES or not os.access(source, os.R_OK):
            self._link(Path(source), Path(target))
        else:
            shutil.copy2(source, target)

    def _link(self, source: Path, target: Path) -> None:
        target.symlink_to(source.resolve())
        self.links.append(str(source.relative_to(self.source)))


_left_out: Callable[..., set[str]] = shutil.ignore_patterns(*_LEFT_OUT)


def _is_small(folder: Path) -> bool:
    """True if all that is in it is worth copying; looks no further than it must."""
    count = size = 0
    for base, _, names in os.walk(folder):
        for name in names:
            count += 1
            size += min(_size(os.path.join(base, name)), LARGEST_COPY_BYTES)
            if count > MOST_FILES or size > MOST_BYTES:
                return False
    return True


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
