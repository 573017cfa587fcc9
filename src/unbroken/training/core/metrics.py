"""Store the metrics of a training, exact, in a form that a checkpoint takes as it is."""

from __future__ import annotations

import csv
import io
import math
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import Any

_CELL = Struct("<IQId")  # epoch, step, which of the names, and the number


class Metrics:
    """Store numbers under names, in the order in which they came; those of an epoch and a step are a row."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.latest: dict[str, float] = {}
        self._cells = bytearray()

    @property
    def size(self) -> int:
        """Return how many numbers there are."""
        return len(self._cells) // _CELL.size

    def add(self, epoch: int, step: int, values: Mapping[str, float]) -> None:
        """Add values to the last row if it is that of the step, else to a new one; steps never go back."""
        for name, value in values.items():
            if name not in self.names:
                self.names.append(name)
            self._cells += _CELL.pack(epoch, step, self.names.index(name), value)
            self.latest[name] = value

    def before(self, step: int) -> int:
        """Return how many numbers there are before the first one of the step or a later one."""
        return bisect_left(range(self.size), step, key=lambda at: self._cell(at)[1])

    def complete(self) -> int:
        """Return how many numbers there are before the last row, which may still grow."""
        at = self.size
        while at and self._cell(at - 1)[:2] == self._cell(self.size - 1)[:2]:
            at -= 1
        return at

    def mean(self, name: str, epoch: int) -> float:
        """Return the mean of what came under the name in the epoch, if that is the last one; NaN if nothing did."""
        found = []
        for at in reversed(range(self.size)):
            cell_epoch, _, column, value = self._cell(at)
            if cell_epoch != epoch:
                break
            if self.names[column] == name:
                found.append(value)
        return math.fsum(found) / len(found) if found else math.nan

    def state(self) -> dict[str, Any]:
        """Return all of it, in JSON's terms."""
        return {"names": [*self.names], "cells": b64encode(self._cells).decode()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the state of another one."""
        self.names, self._cells = list(state["names"]), bytearray(b64decode(state["cells"]))
        self.latest = {self.names[column]: value for _, _, column, value in _CELL.iter_unpack(self._cells)}

    def rows(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int, dict[str, float]]]:
        """Yield epoch, step, and what was logged there under its name, of the numbers from `start` to before `end`."""
        end = self.size if end is None else end
        cells = _CELL.iter_unpack(self._cells[start * _CELL.size : end * _CELL.size])
        for (epoch, step), row in groupby(cells, itemgetter(0, 1)):
            yield epoch, step, {self.names[column]: value for _, _, column, value in row}

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

    def _cell(self, at: int) -> tuple[Any, ...]:
        return _CELL.unpack_from(self._cells, at * _CELL.size)
