"""Store the metrics of a training as rows of (epoch, step), exact, in arrays that a checkpoint takes as they are."""

from __future__ import annotations

import csv
import io
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping


class Metrics:
    """Store numbers under names, in the order in which they came; what comes at the same step shares a row."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.latest: dict[str, float] = {}
        self._epochs, self._steps = array("q"), array("q")  # of each row
        self._rows, self._columns, self._values = array("q"), array("q"), array("d")  # of each number

    @property
    def size(self) -> int:
        """Return the number of rows."""
        return len(self._steps)

    def add(self, epoch: int, step: int, values: Mapping[str, float]) -> None:
        """Add values to the last row if it is that of the step, else to a new one."""
        if not self.size or (self._epochs[-1], self._steps[-1]) != (epoch, step):
            self._epochs.append(epoch)
            self._steps.append(step)
        for name, value in values.items():
            if name not in self.names:
                self.names.append(name)
            self._rows.append(self.size - 1)
            self._columns.append(self.names.index(name))
            self._values.append(value)
            self.latest[name] = value

    def rows_before(self, step: int) -> int:
        """Return how many rows there are before the first one of the step or a later one."""
        return bisect_left(self._steps, step)

    def step_of(self, row: int) -> int:
        """Return the step of a row."""
        return self._steps[row]

    def mean(self, name: str, epoch: int) -> float:
        """Return the mean of what came under the name in the epoch, if that is the last one; NaN if nothing did."""
        found = []
        for at in reversed(range(len(self._values))):
            if self._epochs[self._rows[at]] != epoch:
                break
            if self.names[self._columns[at]] == name:
                found.append(self._values[at])
        return math.fsum(found) / len(found) if found else math.nan

    def arrays(self) -> dict[str, array[int] | array[float]]:
        """Return all but the names: epoch and step of each row; row, column and value of each number."""
        rows = {"epochs": self._epochs, "steps": self._steps}
        return {**rows, "rows": self._rows, "columns": self._columns, "values": self._values}

    def restore(self, names: Iterable[str], **arrays: Iterable[float]) -> None:
        """Take over what `names` and `arrays` of another one were."""
        self.names = list(names)
        self._values = array("d", map(float, arrays.pop("values")))
        for key, numbers in arrays.items():
            setattr(self, f"_{key}", array("q", map(int, numbers)))
        self.latest = {self.names[column]: value for column, value in zip(self._columns, self._values, strict=True)}

    def rows(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int, dict[str, float]]]:
        """Yield epoch, step, and what was logged there under its name, of the rows from `start` to before `end`."""
        at = bisect_left(self._rows, start)
        for row in range(start, self.size if end is None else min(end, self.size)):
            until = bisect_left(self._rows, row + 1, at)
            cells = zip(self._columns[at:until], self._values[at:until], strict=True)
            yield self._epochs[row], self._steps[row], {self.names[column]: value for column, value in cells}
            at = until

    def table(self, start: int = 0, end: int | None = None) -> Iterator[dict[str, float]]:
        """Yield the rows as lines for a table; a metric that is called epoch or step takes the place of ours."""
        for epoch, step, values in self.rows(start, end):
            yield {"epoch": epoch, "step": step} | values

    def to_csv(self) -> str:
        """Return a table of epoch, step and a column for each name; a cell is empty where nothing was logged."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["epoch", "step", *self.names])
        for epoch, step, values in self.rows():
            writer.writerow([epoch, step, *(values.get(name, "") for name in self.names)])
        return text.getvalue()
