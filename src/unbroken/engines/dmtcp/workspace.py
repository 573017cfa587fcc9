"""Manage a program's folder and those of its images, under the names that its images contain."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from unbroken.engines.dmtcp.files import link_folder, put_back, show_inputs
from unbroken.engines.dmtcp.programs import OUTPUT
from unbroken.engines.dmtcp.state import FILES, IMAGES, DmtcpState
from unbroken.errors import SegmentError

SLOTS = "images"
_TAIL_LINES = 20


class Ground:
    """Hold the folders: `live` is the program's; `slots` next to it has a folder of images for each stage."""

    def __init__(self, live: Path, attempt_folder: Path) -> None:
        self.live, self.slots = live, live.with_name(SLOTS)
        self._desk = attempt_folder
        self._count = 0

    def clear(self, inputs: Sequence[Path]) -> None:
        """Make an empty folder for a program that starts from the beginning."""
        draft = self._desk / "live"
        draft.mkdir()
        self._show(draft, inputs)

    def bring_back(self, checkpoint: Path, state: DmtcpState, inputs: Sequence[Path]) -> Path:
        """Restore the program's folder as it was saved; return the folder of its images, under their original path.

        Raise SegmentError if an image is missing.
        """
        draft = self._desk / "live"
        put_back(checkpoint / FILES, state.listing, draft)
        self._show(draft, inputs)
        # An image names the file copies that DMTCP keeps next to it by the absolute path with which it was written.
        slot = self.slots / state.slot
        self.slots.mkdir()
        link_folder(checkpoint / IMAGES, slot)
        if missing := [name for name in state.images if not (slot / name).exists()]:
            raise SegmentError(f"{checkpoint / IMAGES}: {', '.join(missing)} is missing; every process has one")
        return slot

    def _show(self, draft: Path, inputs: Sequence[Path]) -> None:
        """Put the new folder in the old one's place: a process that still writes into the old one writes to nowhere."""
        show_inputs(inputs, draft)
        for old in (self.live, self.slots):
            if old.exists():
                os.rename(old, self._desk / "earlier")
                shutil.rmtree(self._desk / "earlier", ignore_errors=True)
        os.rename(draft, self.live)

    def next_stage(self) -> tuple[Path, Path]:
        """Return two unused paths: one in the attempt folder, and one for the images."""
        self._count += 1
        return self._desk / f"stage{self._count:06d}", self.slots / f"{self._desk.name}-{self._count:06d}"

    def last_words(self) -> list[str]:
        """Return the last lines that the program printed."""
        path = self.live / OUTPUT
        return path.read_text(errors="replace").splitlines()[-_TAIL_LINES:] if path.exists() else []

    def leave(self) -> None:
        """Remove the images, which are no longer needed; the program's folder stays as it is."""
        shutil.rmtree(self.slots, ignore_errors=True)
