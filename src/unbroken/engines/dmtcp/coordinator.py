"""Start a stage's coordinator on a port that the kernel chooses, query it, and read its output after its end."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from unbroken.engines.dmtcp.programs import Programs
from unbroken.errors import SegmentError
from unbroken.program import process as child

STARTING_SECONDS = 60.0
LEAVING_SECONDS = 10.0
LOOK_SECONDS = 0.02
# It says what it does, in the same words from 2.6 to 5.0, unless it is quiet.
TALKATIVE = {"DMTCP_QUIET": "0"}
_PEERS = re.compile(r"NUM_PEERS=(\d+)")
_PID = re.compile(r"\[\d+:(\d+)\]@")
# Printed before the first process is killed.  The coordinator also prints it once the last process has left.
_KILLS, _LEAVES = "illing all connected peers", "last client exited"
_SAVES = re.compile(r"starting checkpoint.*?numPeers\s*=\s*(\d+)", re.DOTALL)


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
