"""The curves that a run has: metrics of its training, energies of its simulation, a program's own figures."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from unbroken.engines.gromacs.energy import ENERGY_TABLE
from unbroken.engines.gromacs.report import SHOWN, UNITS
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.layout import RunFolder
from unbroken.runs.record import read_record
from unbroken.training.core.live_log import METRICS_FILE

# More points cannot be told apart, and more curves nobody looks at.
POINTS = 200
MOST_CURVES = 8
# Of a longer file blocks here and there are read: a training may note a million steps.
BLOCKS, BLOCK_BYTES = 100, 4096
LONGEST_LINE = 10_000
MOST_RECORDS = 200
# What says where the program is, not what it computes.
_NO_CURVE = {"left_seconds", "part", "time_ps", "extended_ps", "epoch", "step"}

# A value that is NaN or infinite is None: a gap in the line.
Point = tuple[float, float | None]
T = TypeVar("T")


@dataclass
class Curve:
    """One figure over the progress of a run, whose unit is `over`."""

    name: str
    over: str
    points: list[Point] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        """Plain values, thinned to `POINTS`."""
        return {"name": self.name, "over": self.over, "points": [list(point) for point in thinned(self.points)]}


def curves_of(places: RunFolder, checkpoints: Sequence[Checkpoint], unit: str) -> list[Curve]:
    """What there is to draw of a run, from the files that its program and its segments left; two points make a line."""
    found: dict[str, Curve] = {}
    if (places.live / METRICS_FILE).is_file():
        for row in _json_rows(places.live / METRICS_FILE):
            over = "step" if _is_number(row.get("step")) else "epoch"
            _add(found, over, row.get(over), row)
    else:
        for done, metrics in sorted(_noted(places, checkpoints).items()):
            _add(found, unit, done, metrics)
    if (places.final / ENERGY_TABLE).is_file():
        for row in _table_rows(places.final / ENERGY_TABLE):
            shown = {f"{name} ({UNITS[name]})": row[name] for name in SHOWN if name in row}
            _add(found, "ps", row.get("time_ps"), shown)
    drawn = [curve for curve in found.values() if sum(value is not None for _, value in curve.points) > 1]
    return drawn[:MOST_CURVES]


def thinned(values: Sequence[T], most: int = POINTS) -> Sequence[T]:
    """At most so many of them, evenly chosen, the first and the last among them."""
    if len(values) <= most:
        return values
    step = (len(values) - 1) / (most - 1)
    return [values[round(place * step)] for place in range(most)]


def _add(found: dict[str, Curve], over: str, at: object, values: Mapping[str, object]) -> None:
    if not _is_number(at):
        return
    for name, value in values.items():
        if name in _NO_CURVE or isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
            continue
        curve = found.setdefault(name, Curve(name, over))
        curve.points.append((float(at), float(value) if _is_number(value) else None))  # type: ignore[arg-type]


def _noted(places: RunFolder, checkpoints: Sequence[Checkpoint]) -> dict[float, Mapping[str, object]]:
    """The figures that stand in the records of the segments and in the checkpoints that are kept, by progress."""
    rows: dict[float, Mapping[str, object]] = {}
    for path in sorted(places.segments.glob("*.json"))[-MOST_RECORDS:]:
        if (record := read_record(path)) is not None:
            rows[record.progress.done] = record.progress.metrics
    return rows | {each.passport.progress.done: each.passport.progress.metrics for each in checkpoints}


def _json_rows(path: Path) -> Iterator[Mapping[str, object]]:
    for line in _lines(path):
        with suppress(ValueError, RecursionError):
            if isinstance(row := json.loads(line), dict):
                yield row


def _table_rows(path: Path) -> Iterator[Mapping[str, object]]:
    """The rows of a tab-separated table of numbers with a line of names."""
    with suppress(OSError), path.open(errors="replace") as file:
        names = file.readline(LONGEST_LINE).rstrip("\n").split("\t")
        for line in _lines(path):
            with suppress(ValueError):
                yield dict(zip(names, map(float, line.split("\t")), strict=True))


def _lines(path: Path) -> Iterator[str]:
    """Lines of a file, in order, of each kind as many as are drawn; of a long file those of blocks here and there.

    What a training notes once an epoch stands in few lines, and is not to get lost among those of its steps.
    """
    lines = list(_blocks(path))
    kinds: dict[int, list[int]] = defaultdict(list)
    for place, line in enumerate(lines):
        kinds[line.count('":')].append(place)
    chosen = [place for places in kinds.values() for place in thinned(places)]
    yield from (lines[place] for place in sorted(chosen))


def _blocks(path: Path) -> Iterator[str]:
    with suppress(OSError), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= BLOCKS * BLOCK_BYTES:
            yield from file.read(BLOCKS * BLOCK_BYTES).decode(errors="replace").splitlines()
            return
        for block in range(BLOCKS):
            # The last one reaches to the end: the last value is the one that is looked at first.
            file.seek((size - BLOCK_BYTES) * block // (BLOCKS - 1))
            lines = file.read(BLOCK_BYTES).decode(errors="replace").splitlines()
            yield from lines[1 if block else 0 : len(lines) if block == BLOCKS - 1 else -1]  # cut lines are left out


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer of 400 digits
        return False
