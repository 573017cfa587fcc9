"""Follow mdrun's log while it grows: its progress and speed, its own end, and signs that it has gone wrong."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path

from unbroken.store.progress import Metric, Progress

_CELL = 15  # characters of a column of energies
_STEP = re.compile(r"^ +Step +Time\n +(\d+) +(\S+)$", re.MULTILINE)
# Rows of names and of values in turn, which an empty line ends.
_ENERGIES = re.compile(r"^ +Energies \(kJ/mol\)\n((?:.+\n)+)\n", re.MULTILINE)
_AVERAGES = "A V E R A G E S"  # of all steps, at the end
_LONGEST_BLOCK = 8 * 1024  # of characters
_WARNINGS = ("LINCS WARNING", "can not be settled")
_LEAVES = ("will terminate the run within", "signal, stopping within")
_SECONDS_A_DAY = 86400


class Log:
    """Hold what the lines read so far say.  Times are on the monotonic clock, seen at the next look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.step: int | None = None
        self.time_ps: float | None = None
        self.energies: dict[str, str] = {}
        self.constraint_warnings: list[str] = []
        self.leaving_at: float | None = None
        self.has_finished = False
        self._first: tuple[int, float, float] | None = None  # step, time and when it was seen
        self._read_bytes = 0
        self._tail = ""

    def read(self) -> None:
        """Read the lines that were added since the last time; a log that is not there yet has said nothing."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read_bytes)
                data = file.read()
        except FileNotFoundError:
            return
        data = data[: data.rfind(b"\n") + 1]
        self._read_bytes += len(data)
        text = data.decode(errors="replace")
        for line in text.splitlines():
            self._see(line)
        text = self._tail + text
        self._tail = text[-_LONGEST_BLOCK:]
        self._see_energies(text.partition(_AVERAGES)[0])

    def progress(self, goal: int | None) -> Progress | None:
        """Return progress, speed and time left, as mdrun says; None before its first step."""
        if self.step is None or self.time_ps is None or self._first is None:
            return None
        metrics: dict[str, Metric] = {"time_ps": self.time_ps}
        step, time_ps, seen_at = self._first
        if self.step != step:
            seconds = max(time.monotonic() - seen_at, 1e-3)
            metrics["pace"] = f"{(self.time_ps - time_ps) / 1000 / seconds * _SECONDS_A_DAY:.4g} ns/day"
            if goal is not None:
                metrics["left_seconds"] = round(max(0, goal - self.step) * seconds / (self.step - step), 1)
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

    def _see(self, line: str) -> None:
        if any(warning in line for warning in _WARNINGS):
            self.constraint_warnings.append(line.strip())
        elif any(words in line for words in _LEAVES):
            self.leaving_at = self.leaving_at or time.monotonic()
        elif line.startswith("Finished mdrun on rank 0"):
            self.has_finished = True

    def _see_energies(self, text: str) -> None:
        for step, time_ps in _STEP.findall(text):
            self.step, self.time_ps = int(step), float(time_ps)
            self._first = self._first or (self.step, self.time_ps, time.monotonic())
        for block in _ENERGIES.findall(text):
            rows = block.splitlines()
            for names, values in zip(rows[::2], rows[1::2], strict=False):
                self.energies.update(zip(_cells(names), _cells(values), strict=False))


def _cells(line: str) -> list[str]:
    return [line[at : at + _CELL].strip() for at in range(0, len(line.rstrip()), _CELL)]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # a cell cut in two is no sign of anything
        return 0.0
