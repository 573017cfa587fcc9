"""Follows mdrun's log while it grows: how far it is, its energies, and what it says of its own end."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CELL = 15  # the energies stand in columns of so many signs
_PERFORMANCE = re.compile(r"Performance: +([0-9.]+)")
_WARNINGS = ("LINCS WARNING", "can not be settled")


@dataclass(frozen=True)
class Start:
    """The first step that the log told, and when it was seen, on the monotonic clock."""

    step: int
    time_ps: float
    seen_at: float


class Log:
    """What the lines read so far say; `read` reads on.  Times are on the monotonic clock, seen at the next look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = ""
        self.step: int | None = None
        self.time_ps: float | None = None
        self.first: Start | None = None
        self.energies: dict[str, str] = {}
        self.constraint_warnings: list[str] = []
        self.fatal: list[str] = []
        self.performance = ""
        self.leaving_at: float | None = None
        self.has_finished = False
        self._read_bytes = 0
        self._rest = b""
        self._before = ""
        self._names: list[str] | None = None
        self._has_averages = False
        self._is_fatal = False

    def read(self) -> None:
        """Reads what was added since the last time; a log that is not there yet has said nothing."""
        for line in self._new_lines():
            self._see(line)

    def _new_lines(self) -> Iterator[str]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._read_bytes)
                data = file.read()
        except FileNotFoundError:
            return
        self._read_bytes += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)

    def _see(self, line: str) -> None:
        self._see_energies(line)
        self._see_end(line)
        if line.startswith("GROMACS version:"):
            self.version = line.partition(":")[2].strip()
        elif any(warning in line for warning in _WARNINGS):
            self.constraint_warnings.append(line.strip())
        elif match := _PERFORMANCE.match(line):
            self.performance = match[1]
        self._before = line

    def _see_energies(self, line: str) -> None:
        if "A V E R A G E S" in line:
            self._has_averages = True
        if self._has_averages:
            return
        if self._before.split() == ["Step", "Time"]:
            self._see_step(line)
        elif line.strip() == "Energies (kJ/mol)":
            self._names, self.energies = [], {}
        elif self._names is not None and not line.strip():
            self._names = None
        elif self._names == []:
            self._names = _cells(line)
        elif self._names:
            self.energies.update(zip(self._names, _cells(line), strict=False))
            self._names = []

    def _see_step(self, line: str) -> None:
        words = line.split()
        if len(words) == 2 and words[0].isdecimal():
            self.step, self.time_ps = int(words[0]), float(words[1])
            self.first = self.first or Start(self.step, self.time_ps, time.monotonic())

    def _see_end(self, line: str) -> None:
        if "will terminate the run within" in line or "signal, stopping within" in line:
            self.leaving_at = self.leaving_at or time.monotonic()
        elif line.startswith("Finished mdrun on rank 0"):
            self.has_finished = True
        elif line.strip() in ("Fatal error:", "Inconsistency in user input:", "File input/output error:"):
            self._is_fatal = True
        elif self._is_fatal and not line.strip():
            self._is_fatal = False
        elif self._is_fatal:
            self.fatal.append(line.strip())


def _cells(line: str) -> list[str]:
    return [line[at : at + _CELL].strip() for at in range(0, len(line.rstrip()), _CELL)]
