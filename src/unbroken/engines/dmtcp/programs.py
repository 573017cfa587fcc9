"""Locate DMTCP's programs, read their release, and build their command lines for 3.x, 4.x and later."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import SegmentError
from unbroken.program import process as child

ASKING_SECONDS = 30.0
# What the program leaves as its very last act, in its folder: its own exit code.  The shell that writes it is part of
# images that are older than the name of this project.
ENDED = ".longhaul-exit-code"
OUTPUT = "output.txt"
# DMTCP's own exit code is 0 too for a program that was checkpointed and killed, so a shell notes the program's own.
_SENTINEL = '"$@" >> ' + OUTPUT + " 2>&1; echo $? > " + ENDED
_VERSION = re.compile(r"\(DMTCP\) (\S+)")
# Settings of DMTCP that come with the user's shell or module would decide where images go and how they are written.
FOREIGN = ("DMTCP_", "UNBROKEN_")
# A gzip that DMTCP starts may still be writing when the image has its final name; images are compressed here instead.
QUIET = {"DMTCP_GZIP": "0", "DMTCP_QUIET": "1"}


@dataclass(frozen=True)
class Programs:
    """Hold the folder of DMTCP's programs; "" means that they are found on the PATH."""

    folder: str = ""

    def path(self, name: str) -> str:
        """Return the path of a program of DMTCP; raise SegmentError if there is none of that name."""
        found = shutil.which(name, path=self.folder or None)
        if found is None:
            where = f"in {self.folder}" if self.folder else "on the PATH"
            raise SegmentError(
                f"{name}: not found {where}; load DMTCP's module (modules: [dmtcp]) or name the folder of its programs "
                "(settings.dmtcp)"
            )
        return found

    def version(self) -> str:
        """Return the release, such as 4.1.1; raise SegmentError if the program does not print it."""
        answer = child.ask([self.path("dmtcp_launch"), "--version"], seconds=ASKING_SECONDS)
        match = _VERSION.search("\n".join(answer.lines))
        if match is None:
            raise SegmentError(f"{self.path('dmtcp_launch')} --version: does not say a release of DMTCP")
        return match[1]

    def coordinator(self, port_file: Path, images: Path) -> list[str]:
        """Return the command of a stage's coordinator, on a free port; its restart script follows all images."""
        words = ["--exit-on-last", "--coord-port", "0", "--port-file", str(port_file), "--ckptdir", str(images)]
        return [self.path("dmtcp_coordinator"), *words]

    def launch(self, port: int, images: Path, options: Sequence[str], command: Sequence[str]) -> list[str]:
        """Return the command that starts the program; its outputs and its exit code are kept in its folder."""
        words = ["--join-coordinator", "--coord-port", str(port), "--no-gzip", "--ckptdir", str(images), *options]
        return [self.path("dmtcp_launch"), *words, "sh", "-c", _SENTINEL, "sh", *command]

    def restart(self, port: int, new_images: Path, images: Sequence[Path]) -> list[str]:
        """Return the command that restarts all processes, an image each; further images go to a folder of their own."""
        words = ["--join-coordinator", "--coord-port", str(port), "--ckptdir", str(new_images)]
        return [self.path("dmtcp_restart"), *words, *map(str, images)]

    def ask(self, port: int, request: str) -> child.Answer:
        """Return the coordinator's answer.  Exit code 2 may mean that there is no coordinator, or success (4.1.1)."""
        return child.ask([self.path("dmtcp_command"), "--coord-port", str(port), request], seconds=ASKING_SECONDS)


def clean_environment() -> None:
    """Remove from our environment, which the program gets, what is not for it; turn messages and compression off."""
    for name in [name for name in os.environ if name.startswith(FOREIGN)]:
        del os.environ[name]
    os.environ.update(QUIET)
