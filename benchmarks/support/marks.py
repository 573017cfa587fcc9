"""Moments of a segment, written down by the program that works in it: a JSON line in `marks.jsonl` for each segment."""

import json
import os
import time
from pathlib import Path

FILE = Path("marks.jsonl")


def phase_seconds(segment: int) -> float:
    """Return by how much a segment is to end early, from 0 to 1 s: slurmctld looks for what may start once a second.

    Segments of equal length would all end at the same moment of that second, and one chain would be one sample.
    """
    return segment * 0.618 % 1.0


class Marks:
    """Moments by name, in Unix seconds; the starts of this process and of those above it are asked from the kernel."""

    def __init__(self) -> None:
        program, script = os.getpid(), os.getppid()
        if b"/guard.py" in Path(f"/proc/{script}/cmdline").read_bytes():  # stands between a segment and its program
            script = _parent(script)
        driver = _parent(script)
        self._moments = {"segment": int(os.environ["UNBROKEN_SEGMENT"])}
        for name, pid in (("driver_start", driver), ("script_start", script), ("program_start", program)):
            self._moments[name] = _started(pid)

    def now(self, name: str) -> None:
        """Notes the moment; of several only the last counts."""
        self._moments[name] = time.time()

    def first(self, name: str) -> None:
        """Notes the moment if there is none of that name yet."""
        self._moments.setdefault(name, time.time())

    def write(self) -> None:
        self.now("program_end")
        with FILE.open("a") as file:
            print(json.dumps(self._moments), file=file)


def read_marks(folder: Path) -> list[dict[str, float]]:
    """The moments of each segment that worked, in order."""
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()]


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _parent(pid: int) -> int:
    return int(_fields(pid)[1])


def _started(pid: int) -> float:
    """To a hundredth of a second, as the kernel counts (field 22 of proc(5) stat)."""
    seconds_since_boot = int(_fields(pid)[19]) / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + seconds_since_boot
