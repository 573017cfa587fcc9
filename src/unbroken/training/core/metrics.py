"""The metrics of a training as rows of (epoch, step): compact in memory and in a checkpoint, and exact.

Rows that follow each other regularly, say one a step with the same names, are one run.  So a million steps take hardly
more than their numbers, eight bytes each.
"""

from __future__ import annotations

import csv
import io
import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass
class _Run:
    """Rows of one epoch, equally many steps apart, in each of which the same names came in the same order."""

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
        """True if the row is one of it, which it is then."""
        stride = step - self.last_step()
        if (epoch, columns) != (self.epoch, self.columns) or (self.count > 1 and stride != self.stride):
            return False
        self.stride, self.count = stride, self.count + 1
        return True

    def rows(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Step and number of the first value of each row with a number from `start` to before `end`."""
        for number in range(max(start - self.row, 0), min(end - self.row, self.count)):
            yield self.step + self.stride * number, self.value + len(self.columns) * number


class Metrics:
    """Numbers under names, in the order in which they came; what comes at the same step shares a row."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.names: list[str] = []
        self.latest: dict[str, float] = {}
        self._values = array("d")
        self._runs: list[_Run] = []
        self._size = 0  # rows in runs
        self._open: tuple[int, int] | None = None  # epoch and step of the last row, which may still grow
        self._columns: list[int] = []  # of that row

    def add(self, epoch: int, step: int, values: Mapping[str, float]) -> None:
        if self._open != (epoch, step):
            self._close()
            self._open, self._columns = (epoch, step), []
        for name, value in values.items():
            if name not in self.names:
                self.names.append(name)
            self._columns.append(self.names.index(name))
            self._values.append(value)
            self.latest[name] = value

    def mean(self, name: str, epoch: int) -> float:
        """The mean of what came under the name in the epoch, if that is the last one; NaN if nothing did."""
        found: list[float] = []
        for run in reversed(self._closed()):
            if run.epoch != epoch:
                break
            for place in (place for place, column in enumerate(run.columns) if self.names[column] == name):
                end = run.value + len(run.columns) * run.count
                found += self._values[run.value + place : end : len(run.columns)]
        return math.fsum(found) / len(found) if found else math.nan

    def arrays(self) -> dict[str, array[int] | array[float]]:
        """Everything but the names: of each run epoch, first step, stride, rows and pattern; the patterns; the values.

        A pattern is how many values a row has, and the numbers of their names.
        """
        patterns: dict[tuple[int, ...], int] = {}
        runs = array("q")
        for run in self._closed():
            number = patterns.setdefault(run.columns, len(patterns))
            runs.extend((run.epoch, run.step, run.stride, run.count, number))
        flat = array("q", (number for columns in patterns for number in (len(columns), *columns)))
        return {"runs": runs, "patterns": flat, "values": self._values}

    def restore(self, names: Iterable[str], **arrays: Iterable[float]) -> None:
        """Takes over what `names` and `arrays` of another one were."""
        self._clear()
        if "rows" in arrays:
            return self._restore_old(list(names), **arrays)
        self.names, self._values = list(names), array("d", map(float, arrays["values"]))
        patterns = list(_patterns(list(map(int, arrays["patterns"]))))
        numbers = list(map(int, arrays["runs"]))
        value = 0
        for at in range(0, len(numbers), 5):
            epoch, step, stride, count, pattern = numbers[at : at + 5]
            self._runs.append(_Run(epoch, step, patterns[pattern], self._size, value, stride, count))
            self._size, value = self._size + count, value + count * len(patterns[pattern])
        for run in self._runs:
            last = run.value + len(run.columns) * (run.count - 1)
            self.latest |= {self.names[column]: self._values[last + at] for at, column in enumerate(run.columns)}
        self._open_last()

    @property
    def size(self) -> int:
        """The number of rows."""
        return self._size + (self._open is not None)

    def table(self, start: int = 0, end: int | None = None) -> list[dict[str, float]]:
        """The rows from `start` to before `end`: epoch, step, and what was logged there under its name."""
        runs = self._closed()
        first = max(bisect_right(runs, start, key=lambda run: run.row) - 1, 0)
        return [row for run in runs[first:] for row in self._rows_of(run, start, self.size if end is None else end)]

    def to_csv(self) -> str:
        """A table with the columns epoch, step and one for each name; a cell is empty where nothing was logged."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["epoch", "step", *self.names])
        for run in self._closed():
            for step, value in run.rows(0, self.size):
                cells: list[float | str] = ["" for _ in self.names]
                for place, column in enumerate(run.columns):
                    cells[column] = self._values[value + place]
                writer.writerow([run.epoch, step, *cells])
        return text.getvalue()

    def _rows_of(self, run: _Run, start: int, end: int) -> Iterator[dict[str, float]]:
        names = [self.names[column] for column in run.columns]
        for step, value in run.rows(start, end):
            numbers = zip(names, self._values[value : value + len(names)], strict=True)
            yield {"epoch": run.epoch, "step": step, **dict(numbers)}

    def _close(self) -> None:
        """Puts the last row into a run."""
        if self._open is not None:
            if not (self._runs and self._runs[-1].takes(*self._open, tuple(self._columns))):
                self._runs.append(self._run_of_last())
            self._size += 1

    def _closed(self) -> list[_Run]:
        """The runs with the last row in them, which stays open."""
        if self._open is None:
            return self._runs
        if self._runs and (last := replace(self._runs[-1])).takes(*self._open, tuple(self._columns)):
            return [*self._runs[:-1], last]
        return [*self._runs, self._run_of_last()]

    def _run_of_last(self) -> _Run:
        epoch, step = self._open or (0, 0)
        return _Run(epoch, step, tuple(self._columns), self._size, len(self._values) - len(self._columns))

    def _open_last(self) -> None:
        """Takes the last row out of its run, for more may come at its step."""
        if not self._runs:
            return
        last = self._runs.pop()
        self._open, self._columns = (last.epoch, last.last_step()), list(last.columns)
        self._size -= 1
        if last.count > 1:
            self._runs.append(replace(last, count=last.count - 1, stride=last.stride if last.count > 2 else 0))

    def _restore_old(self, names: Sequence[str], **arrays: Iterable[float]) -> None:
        """From checkpoints that have a number of each row and column."""
        epochs, steps, rows, columns = (list(map(int, arrays[key])) for key in ("epochs", "steps", "rows", "columns"))
        of_row: list[list[tuple[str, float]]] = [[] for _ in steps]
        for row, column, value in zip(rows, columns, map(float, arrays["values"]), strict=True):
            of_row[row].append((names[column], value))
        for epoch, step, pairs in zip(epochs, steps, of_row, strict=True):
            self.add(epoch, step, {})
            for name, value in pairs:
                self.add(epoch, step, {name: value})


def _patterns(flat: Sequence[int]) -> Iterator[tuple[int, ...]]:
    at = 0
    while at < len(flat):
        yield tuple(flat[at + 1 : at + 1 + flat[at]])
        at += 1 + flat[at]
