"""Store the metrics of a training as rows of (epoch, step): compact in memory and in a checkpoint, and exact.

Rows that follow each other regularly, say one a step with the same names, are one run.  So a million steps take hardly
more than their numbers, eight bytes each.
"""

from __future__ import annotations

import csv
import io
import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass


@dataclass
class _Run:
    """Store rows of one epoch, equally many steps apart, each with the same names in the same order."""

    epoch: int
    step: int  # of the first row
    columns: tuple[int, ...]  # the numbers of the names
    row: int  # the number of the first row,
    value: int  # and of its first value
    stride: int = 0  # steps from one row to the next, once there are two
    count: int = 1

    def last_step(self) -> int:
        return self.step + self.stride * (self.count - 1)

    def takes(self, epoch: int, step: int, columns: tuple[int, ...]) -> bool:
        """Return True if the row fits to the others; it is one of them then."""
        stride = step - self.last_step()
        if (epoch, columns) != (self.epoch, self.columns) or (self.count > 1 and stride != self.stride):
            return False
        self.stride, self.count = stride, self.count + 1
        return True

    def drop_last(self) -> None:
        self.count -= 1
        self.stride = self.stride if self.count > 1 else 0

    def rows(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield step and number of the first value of each row with a number from `start` to before `end`."""
        for number in range(max(start - self.row, 0), min(end - self.row, self.count)):
            yield self.step + self.stride * number, self.value + len(self.columns) * number


class Metrics:
    """Store numbers under names, in the order in which they came; what comes at the same step shares a row."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.names: list[str] = []
        self.latest: dict[str, float] = {}
        self.size = 0  # the number of rows
        self._values = array("d")
        self._runs: list[_Run] = []

    def add(self, epoch: int, step: int, values: Mapping[str, float]) -> None:
        """Add values to the last row if it is that of the step, else to a new one."""
        columns = self._last_columns(epoch, step)
        for name, value in values.items():
            if name not in self.names:
                self.names.append(name)
            columns.append(self.names.index(name))
            self._values.append(value)
            self.latest[name] = value
        row = (epoch, step, tuple(columns))
        if not (self._runs and self._runs[-1].takes(*row)):
            self._runs.append(_Run(*row, self.size, len(self._values) - len(columns)))
        self.size += 1

    def _last_columns(self, epoch: int, step: int) -> list[int]:
        """Take the last row out of its run if it is that of the step, so that it can grow; return what it has."""
        last = self._runs[-1] if self._runs else None
        if last is None or (last.epoch, last.last_step()) != (epoch, step):
            return []
        self.size -= 1
        if last.count > 1:
            last.drop_last()
        else:
            self._runs.pop()
        return list(last.columns)

    def mean(self, name: str, epoch: int) -> float:
        """Return the mean of what came under the name in the epoch, if that is the last one; NaN if nothing did."""
        found: list[float] = []
        for run in reversed(self._runs):
            if run.epoch != epoch:
                break
            for place in (place for place, column in enumerate(run.columns) if self.names[column] == name):
                end = run.value + len(run.columns) * run.count
                found += self._values[run.value + place : end : len(run.columns)]
        return math.fsum(found) / len(found) if found else math.nan

    def arrays(self) -> dict[str, array[int] | array[float]]:
        """Return all but the names: of each run epoch, first step, stride, rows and pattern; the patterns; the values.

        A pattern is how many values a row has, and the numbers of their names.
        """
        patterns: dict[tuple[int, ...], int] = {}
        runs = array("q")
        for run in self._runs:
            number = patterns.setdefault(run.columns, len(patterns))
            runs.extend((run.epoch, run.step, run.stride, run.count, number))
        flat = array("q", (number for columns in patterns for number in (len(columns), *columns)))
        return {"runs": runs, "patterns": flat, "values": self._values}

    def restore(self, names: Iterable[str], **arrays: Iterable[float]) -> None:
        """Take over what `names` and `arrays` of another one were."""
        self._clear()
        values = array("d", map(float, arrays.pop("values")))
        numbers = {key: list(map(int, own)) for key, own in arrays.items()}
        if "rows" in numbers:  # of a checkpoint that has a number of each row and column
            known, epochs, steps = list(names), numbers["epochs"], numbers["steps"]
            for row, column, value in zip(numbers["rows"], numbers["columns"], values, strict=True):
                self.add(epochs[row], steps[row], {known[column]: value})
            return
        self.names, self._values = list(names), values
        patterns, flat = [], iter(numbers["patterns"])
        for length in flat:
            patterns.append(tuple(next(flat) for _ in range(length)))
        at = 0
        for epoch, step, stride, count, pattern in zip(*[iter(numbers["runs"])] * 5, strict=True):
            run = _Run(epoch, step, patterns[pattern], self.size, at, stride, count)
            self._runs.append(run)
            self.size, at = self.size + count, at + count * len(run.columns)
            last = values[at - len(run.columns) : at]
            self.latest |= {self.names[column]: value for column, value in zip(run.columns, last, strict=True)}

    def table(self, start: int = 0, end: int | None = None) -> list[dict[str, float]]:
        """Return the rows from `start` to before `end`: epoch, step, and what was logged there under its name."""
        first = max(bisect_right(self._runs, start, key=lambda run: run.row) - 1, 0)
        return [
            {"epoch": run.epoch, "step": step} | {self.names[column]: number for column, number in cells}
            for run in self._runs[first:]
            for step, cells in self._rows(run, start, self.size if end is None else end)
        ]

    def to_csv(self) -> str:
        """Return a table of epoch, step and a column for each name; a cell is empty where nothing was logged."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["epoch", "step", *self.names])
        for run in self._runs:
            for step, cells in self._rows(run, 0, self.size):
                found = dict(cells)
                writer.writerow([run.epoch, step, *(found.get(column, "") for column in range(len(self.names)))])
        return text.getvalue()

    def _rows(self, run: _Run, start: int, end: int) -> Iterator[tuple[int, Iterator[tuple[int, float]]]]:
        """Yield the step of each row, and its values with the numbers of their names."""
        for step, value in run.rows(start, end):
            yield step, zip(run.columns, self._values[value : value + len(run.columns)], strict=True)
