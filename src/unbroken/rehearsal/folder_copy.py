"""A copy of the user's folder for each piece, so that nothing that a piece leaves there is found by the next one.

The rehearsed program writes as it always does, so no path in the copy leads to a file of the user's but those that they
name as only read (`--read-only`), and files whose content belongs to the run's identity.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from unbroken.errors import ConfigError
from unbroken.runs.layout import LOGS, RESULTS, STORES
from unbroken.system import fs

# So much is copied for each of half a dozen pieces.
MOST_FILES = 20_000
LARGE_BYTES = 16 * 1024 * 1024
MOST_BYTES = 512 * 1024 * 1024
_NAMED = 5
_OURS = {str(RESULTS), str(LOGS), str(STORES), ".snakemake"}
_RUBBISH = {"__pycache__", ".mypy_cache"}
# A program may need them, and writes nothing there.
_LINKED = {".git", ".venv"}


@dataclass
class FolderCopy:
    """A folder to be copied; `shared` are paths in it, or links, that the program only reads.

    `links` are those of them that became links to the user's own.
    """

    source: Path
    shared: Collection[str] = ()
    links: list[str] = field(default_factory=list)

    def make(self, target: Path) -> None:
        """Makes the copy anew."""
        self.links.clear()
        target.mkdir(parents=True)
        for entry in self._top():
            self._add(Path(entry.path), target / entry.name)

    def _add(self, source: Path, target: Path) -> None:
        name = str(source.relative_to(self.source))
        if self._is_shared(name):
            target.symlink_to(source.resolve())
            if name in self.shared:
                self.links.append(name)
        elif source.is_dir():  # also what a link leads to: the program may write through it
            target.mkdir()
            for entry in _entries(source):
                self._add(Path(entry.path), target / entry.name)
        elif source.is_file() and os.access(source, os.R_OK):  # no pipe, no socket, nor what the program cannot read
            with fs.storage_errors(target, source.stat().st_size):
                shutil.copy2(source, target)

    def _is_shared(self, name: str) -> bool:
        return name in _LINKED or name in self.shared

    def _top(self) -> Iterator[os.DirEntry[str]]:
        return (entry for entry in _entries(self.source) if entry.name not in _OURS)

    def confirm_small(self, run: str) -> None:
        """ConfigError, with what to type, where there is too much to copy."""
        sizes = {entry.name: self._size(Path(entry.path), frozenset()) for entry in self._top()}
        files, size = (sum(each) for each in zip((0, 0), *sizes.values(), strict=True))
        if files <= MOST_FILES and size <= MOST_BYTES:
            return
        largest = sorted(sizes, key=lambda name: max(sizes[name][0] / MOST_FILES, sizes[name][1] / MOST_BYTES))[::-1]
        told = ", ".join(
            f"{name} ({sizes[name][1] / 1e6:,.0f} MB, {sizes[name][0]:,} files)" for name in largest[:_NAMED]
        )
        raise ConfigError(
            [
                f"{run}: each piece of a rehearsal starts in a copy of this folder, which holds {size / 1e6:,.0f} MB "
                f"in {files:,} files (allowed: {MOST_BYTES / 1e6:,.0f} MB, {MOST_FILES:,} files); the largest: {told}; "
                f"name what the program only reads: unbroken rehearse {run} --read-only {largest[0]}"
            ]
        )

    def _size(self, path: Path, above: frozenset[str]) -> tuple[int, int]:
        """Files and bytes that would be copied; looks no further than needed, and into no circle of links."""
        if self._is_shared(str(path.relative_to(self.source))):
            return 0, 0
        if not path.is_dir():
            return 1, size_of(path)
        real = os.path.realpath(path)
        if real in above:
            raise ConfigError([f"{path}: leads into itself; name it as --read-only {path.relative_to(self.source)}"])
        files = size = 0
        for entry in _entries(path):
            more = self._size(Path(entry.path), above | {real})
            files, size = files + more[0], size + more[1]
            if files > 100 * MOST_FILES:
                break
        return files, size


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        yield from sorted((entry for entry in found if entry.name not in _RUBBISH), key=lambda entry: entry.name)


def size_of(path: Path) -> int:
    """In bytes; 0 where it is not there."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
