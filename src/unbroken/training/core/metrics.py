"""The metrics of a training as rows of (epoch, step): compact in memory, exact in a checkpoint."""

from __future__ import annotations

import csv
import io
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping


class Metrics:
    """Numbers under names, in the order in which they came; what comes at the same step shares a row."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.epochs, self.steps = array("q"), array("q")  # of each row
        self.rows, self.columns = array("q"), array("q")  # of each value
        self.values = array("d")
        self.latest: dict[str, float] = {}

    def add(self, epoch: int, step: int, values: Mapping[str, float]) -> None:
        if not self.steps or (self.epochs[-1], self.steps[-1]) != (epoch, step):
            self.epochs.append(epoch)
            self.steps.append(step)
        for name, value in values.items():
            if name not in self.names:
                self.names.append(name)
            self.rows.append(len(self.steps) - 1)
            self.columns.append(self.names.index(name))
            self.values.append(value)
            self.latest[name] = value

    def mean(self, name: str, epoch: int) -> float:
        """The mean of what came under the name in the epoch, if that is the last one; NaN if nothing did."""
        found = []
        for row, column, value in zip(reversed(self.rows), reversed(self.columns), reversed(self.values), strict=True):
            if self.epochs[row] != epoch:
                break
            if self.names[column] == name:
                found.append(value)
        return math.fsum(found) / len(found) if found else math.nan

    def arrays(self) -> dict[str, array[int] | array[float]]:
        """Everything but the names."""
        keys = ("epochs", "steps", "rows", "columns", "values")
        return {key: getattr(self, key) for key in keys}

    def restore(self, names: Iterable[str], **arrays: Iterable[float]) -> None:
        """Takes over what `names` and `arrays` of another one were."""
        self.names = list(names)
        for key, own in self.arrays().items():
            convert = int if own.typecode == "q" else float
            setattr(self, key, array(own.typecode, map(convert, arrays[key])))
        pairs = zip(self.columns, self.values, strict=True)
        self.latest = {self.names[column]: value for column, value in pairs}

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.steps)

    def table(self, start: int = 0, end: int | None = None) -> list[dict[str, float]]:
        """The rows from `start` to before `end`: epoch, step, and what was logged there under its name."""
        end = self.size if end is None else end
        found: list[dict[str, float]] = [{"epoch": self.epochs[at], "step": self.steps[at]} for at in range(start, end)]
        first, last = bisect_left(self.rows, start), bisect_left(self.rows, end)
        for at in range(first, last):
            found[self.rows[at] - start][self.names[self.columns[at]]] = self.values[at]
        return found

    def to_csv(self) -> str:
        """A table with the columns epoch, step and one for each name; a cell is empty where nothing was logged."""
        table: list[list[float | str]] = [["" for _ in self.names] for _ in self.steps]
        for row, column, value in zip(self.rows, self.columns, self.values, strict=True):
            table[row][column] = value
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["epoch", "step", *self.names])
        for epoch, step, cells in zip(self.epochs, self.steps, table, strict=True):
            writer.writerow([epoch, step, *cells])
        return text.getvalue()
