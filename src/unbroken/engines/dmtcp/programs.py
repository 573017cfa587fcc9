"""Build the command lines of DMTCP 3.x, 4.x and later, and run its coordinator."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import SegmentError
from unbroken.program import process as child

ASKING_SECONDS = 30.0
# What the program leaves as its very last act, in its folder: its own exit code.  The shell that writes it is part of
# images that are older than the name of this project.
ENDED = ".unbroken-exit-code"
OUTPUT = "output.txt"
# DMTCP's own exit code is 0 too for a program that was checkpointed and killed, so a shell notes the program's own.
_SENTINEL = '"$@" >> ' + OUTPUT + " 2>&1; echo $? > " + ENDED
_VERSION = re.compile(r"\(DMTCP\) (\S+)")
# Settings of DMTCP that come with the user's shell or module would decide where images go and how they are written.
FOREIGN = ("DMTCP_", "UNBROKEN_")
# A gzip that DMTCP starts may still be writing when the image has its final name; images are compressed here instead.
QUIET = {"DMTCP_GZIP": "0", "DMTCP_QUIET": "1"}

STARTING_SECONDS = 60.0
LEAVING_SECONDS = 10.0
LOOK_SECONDS = 0.02
# The coordinator says what it does, in the same words from 2.6 to 5.0, unless it is quiet.
TALKATIVE = {"DMTCP_QUIET": "0"}
_PEERS = re.compile(r"NUM_PEERS=(\d+)")
_PID = re.compile(r"\[\d+:(\d+)\]@")
# Printed before the first process is killed.  The coordinator also prints it once the last process has left.
_KILLS, _LEAVES = "illing all connected peers", "last client exited"
_SAVES = re.compile(r"starting checkpoint.*?numPeers\s*=\s*(\d+)", re.DOTALL)


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


@dataclass(frozen=True)
class Peers:
    """Hold how many processes are under a coordinator, and whether they all run."""

    count: int
    is_running: bool


class Coordinator:
    """Run a coordinator, which leaves when the last process of its program has left."""

    def __init__(self, programs: Programs, folder: Path, images: Path) -> None:
        self._programs = programs
        self._said = folder / "coordinator.txt"
        port_file = folder / "port"
        self._child = child.start(programs.coordinator(port_file, images), TALKATIVE, self._said, folder)
        self.port = self._port(port_file)

    def _port(self, port_file: Path) -> int:
        end = time.monotonic() + STARTING_SECONDS
        while not (text := port_file.read_text().strip() if port_file.exists() else ""):
            if self._child.wait(LOOK_SECONDS) is not None or time.monotonic() > end:
                self.close()
                raise SegmentError(f"dmtcp_coordinator does not start: {self._words()[-500:] or 'it said nothing'}")
        return int(text)

    def peers(self) -> Peers:
        """Return the number of connected processes and whether they run; none if the coordinator does not answer."""
        if self.is_gone():
            return Peers(0, is_running=False)
        text = self._ask("--status")
        match = _PEERS.search(text)
        return Peers(int(match[1]) if match else 0, "RUNNING=yes" in text)

    def pids(self) -> list[int]:
        """Return the process IDs of the program."""
        return [int(pid) for pid in _PID.findall(self._ask("--list"))]

    def save_and_kill(self) -> None:
        """Request a checkpoint and the program's end; the exit code differs by release and means nothing."""
        self._programs.ask(self.port, "--kcheckpoint")

    def _ask(self, request: str) -> str:
        return "\n".join(self._programs.ask(self.port, request).lines)

    # --- the end ---

    def is_gone(self, wait_seconds: float = 0) -> bool:
        return self._child.wait(wait_seconds) is not None

    def has_killed(self) -> bool:
        """Return True if the coordinator killed its program, or was killed itself.

        Then an exit code that the program's shell recorded is not the program's: processes are killed one after the
        other, with exit code 0, and the shell may live long enough to record it.
        """
        code = self._child.wait(LEAVING_SECONDS)
        return code not in (0, None) or _KILLS in self._words().partition(_LEAVES)[0]

    def saved_count(self) -> int:
        """Return how many processes, and so images, the last checkpoint was begun with; 0 if there is none."""
        return max((int(count) for count in _SAVES.findall(self._words())[-1:]), default=0)

    def _words(self) -> str:
        return self._said.read_text(errors="replace").strip()

    def close(self) -> None:
        self._child.end(LEAVING_SECONDS)
