"""Follow mdrun's log while it grows: its progress and speed, its own end, and signs that it has gone wrong."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unbroken.runs.progress import Metric, Progress

_CELL = 15  # characters of a column of energies
_PERFORMANCE = re.compile(r"Performance: +([0-9.]+)")
_WARNINGS = ("LINCS WARNING", "can not be settled")
_FATAL = ("Fatal error:", "Inconsistency in user input:", "File input/output error:")
_SECONDS_A_DAY = 86400


@dataclass(frozen=True)
class Start:
    """Hold the first step in the log, and when it was seen, on the monotonic clock."""

    step: int
    time_ps: float
    seen_at: float


class Log:
    """Hold what the lines read so far say.  Times are on the monotonic clock, seen at the next look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = ""
        self.step: int | None = None
        self.time_ps: float | None = None
        self.energies: dict[str, str] = {}
        self.constraint_warnings: list[str] = []
        self.fatal: list[str] = []
        self.performance = ""
        self.leaving_at: float | None = None
        self.has_finished = False
        self._first: Start | None = None
        self._read_bytes = 0
        self._rest = b""
        self._before = ""
        self._names: list[str] | None = None
        self._has_averages = False
        self._is_fatal = False

    def read(self) -> None:
        """Read what was added since the last time; a log that is not there yet has said nothing."""
        for line in self._new_lines():
            self._see(line)

    def progress(self, goal: int | None) -> Progress | None:
        """Return progress, speed and time left, as mdrun says; None before its first step."""
        if self.step is None or self.time_ps is None or self._first is None:
            return None
        metrics: dict[str, Metric] = {"time_ps": self.time_ps}
        if (steps := self.step - self._first.step) != 0:
            seconds = max(time.monotonic() - self._first.seen_at, 1e-3)
            time_ps = self.time_ps - self._first.time_ps
            metrics["pace"] = f"{time_ps / 1000 / seconds * _SECONDS_A_DAY:.4g} ns/day"
            if goal is not None:
                metrics["left_seconds"] = round(max(0, goal - self.step) * seconds / steps, 1)
        return Progress(self.step, goal, "steps", metrics)

    def divergence(self, max_temperature: float | None, max_constraint_warnings: float | None) -> str:
        """Return what has gone wrong with the simulation, in one line; empty if nothing has.  None: no limit."""
        for name, text in self.energies.items():
            if not math.isfinite(value := _number(text)):
                return f"{name} is {text} at step {self.step}: the simulation has blown up"
            if name == "Temperature" and max_temperature is not None and value > max_temperature:
                where = f"Temperature {value:g} K at step {self.step}"
                return f"{where} is above max_temperature ({max_temperature:g} K): the simulation is blowing up"
        count = len(self.constraint_warnings)
        if max_constraint_warnings is not None and count > max_constraint_warnings:
            last = self.constraint_warnings[-1]
            return f"{count} constraint warnings (max_constraint_warnings {max_constraint_warnings}), the last: {last}"
        return ""

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
            self._first = self._first or Start(self.step, self.time_ps, time.monotonic())

    def _see_end(self, line: str) -> None:
        if "will terminate the run within" in line or "signal, stopping within" in line:
            self.leaving_at = self.leaving_at or time.monotonic()
        elif line.startswith("Finished mdrun on rank 0"):
            self.has_finished = True
        elif line.strip() in _FATAL:
            self._is_fatal = True
        elif self._is_fatal and not line.strip():
            self._is_fatal = False
        elif self._is_fatal:
            self.fatal.append(line.strip())


def _cells(line: str) -> list[str]:
    return [line[at : at + _CELL].strip() for at in range(0, len(line.rstrip()), _CELL)]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # a cell cut in two is no sign of anything
        return 0.0
