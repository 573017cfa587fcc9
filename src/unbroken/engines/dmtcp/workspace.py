"""Manage a program's folder and those of its images, under the names that its images contain."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from unbroken.engines.dmtcp.checkpoint import FILES, IMAGES, DmtcpState, link_images, put_back, walk
from unbroken.engines.dmtcp.programs import ENDED, OUTPUT
from unbroken.errors import SegmentError
from unbroken.store.own_folder import confirm_own

SLOTS = "images"
_TAIL_LINES = 20


class Workspace:
    """Hold the folders: `live` is the program's; `slots` next to it has a folder of images for each stage."""

    def __init__(self, live: Path, attempt_folder: Path) -> None:
        self.live, self.slots = live, live.with_name(SLOTS)
        self._attempt_folder = attempt_folder
        self._count = 0

    def clear(self, inputs: Sequence[Path]) -> None:
        """Make an empty folder for a program that starts from the beginning."""
        draft = self._attempt_folder / "live"
        draft.mkdir()
        self._replace_live(draft, inputs)

    def bring_back(self, checkpoint: Path, state: DmtcpState, inputs: Sequence[Path]) -> Path:
        """Restore the program's folder as it was saved; return the folder of its images, under their original path.

        Raise SegmentError if an image is missing.
        """
        draft = self._attempt_folder / "live"
        put_back(checkpoint / FILES, state.listing, draft)
        self._replace_live(draft, inputs)
        # An image names the file copies that DMTCP keeps next to it by the absolute path with which it was written.
        slot = self.slots / state.slot
        self.slots.mkdir()
        link_images(checkpoint / IMAGES, slot)
        if missing := [name for name in state.images if not (slot / name).exists()]:
            raise SegmentError(f"{checkpoint / IMAGES}: {', '.join(missing)} is missing; every process has one")
        return slot

    def _replace_live(self, draft: Path, inputs: Sequence[Path]) -> None:
        """Put the new folder in the old one's place: a process that still writes into the old one writes to nowhere.

        Inputs are linked into it by their last names; a file of the program's own stays.
        """
        for path in inputs:
            link = draft / path.name
            if link.is_symlink():
                link.unlink()
            if not link.exists():
                link.symlink_to(path.resolve())
        for old in (self.live, self.slots):
            if old.exists():
                os.rename(old, self._attempt_folder / "earlier")
                shutil.rmtree(self._attempt_folder / "earlier", ignore_errors=True)
        os.rename(draft, self.live)

    def next_stage(self) -> tuple[Path, Path]:
        """Return two unused paths: one in the attempt folder, and one for the images."""
        self._count += 1
        slot = self.slots / f"{self._attempt_folder.name}-{self._count:06d}"
        return self._attempt_folder / f"stage{self._count:06d}", slot

    def last_words(self) -> list[str]:
        """Return the last lines that the program printed."""
        path = self.live / OUTPUT
        return path.read_text(errors="replace").splitlines()[-_TAIL_LINES:] if path.exists() else []

    def leave(self) -> None:
        """Remove the images, which are no longer needed; the program's folder stays as it is."""
        shutil.rmtree(self.slots, ignore_errors=True)


def take_results(live: Path, final: Path) -> None:
    """Rename what the finished program left to `final`; links and the mark of its end are no result.

    Raise ForeignFolderError if the program has put something else in the place of its folder.
    """
    confirm_own(live)
    for path in list(walk(live)):
        if path.is_symlink() or path.name == ENDED or not (path.is_dir() or path.is_file()):
            path.unlink()
    os.rename(live, final)


def size_bytes(folder: Path) -> int:
    """Return the bytes of all files below; a program may run there, and files that vanish meanwhile count zero."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                state = os.lstat(os.path.join(base, name))
                total += state.st_size if stat.S_ISREG(state.st_mode) else 0
    return total
