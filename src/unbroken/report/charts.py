"""Collect the data of a run's charts: spans, progress, metrics and energies; thinned to what can be seen."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from unbroken.engines.gromacs.tool import ENERGY_TABLE, SHOWN, UNITS
from unbroken.report.spans import Kind, Span
from unbroken.store.checkpoint import Checkpoint
from unbroken.store.history import Attempt, EndKind
from unbroken.store.layout import METRICS_FILE, RunFolder
from unbroken.store.record import read_record
from unbroken.system.clock import unix_seconds

# More points or spans cannot be told apart, and more curves are not looked at.
POINTS, SPANS, MOST_CURVES = 200, 400, 8
# Of a longer file blocks here and there are read: a training may log a million steps.
BLOCKS, BLOCK_BYTES = 100, 4096
LONGEST_LINE = 10_000
MOST_RECORDS = 200
# Metrics that say where the program is, not what it computes.
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
        """Return plain values, thinned to `POINTS`."""
        return {"name": self.name, "over": self.over, "points": [list(point) for point in thinned(self.points)]}


def thinned(values: Sequence[T], most: int = POINTS) -> Sequence[T]:
    """Return at most so many of the values, evenly chosen, the first and the last among them."""
    if len(values) <= most:
        return values
    step = (len(values) - 1) / (most - 1)
    return [values[round(place * step)] for place in range(most)]


def thinned_spans(spans: Sequence[Span]) -> list[Span]:
    """Return about `SPANS` spans that cover the same time: those that begin close together become one."""
    if len(spans) <= SPANS:
        return list(spans)
    begin, shortest = spans[0].begin, (spans[-1].end - spans[0].begin) / SPANS
    groups = groupby(spans, key=lambda span: int((span.begin - begin) / shortest))
    return [_as_one(list(group)) for _, group in groups]


def progress_points(
    attempts: Sequence[Attempt], checkpoints: Sequence[Checkpoint], now: float, done: float | None
) -> list[tuple[float, float]]:
    """Return Unix seconds and progress, in order: where attempts began and ended, at checkpoints, and now.

    What an attempt did behind its last checkpoint counts until the next one begins at that.
    """
    points = [(unix_seconds(each.passport.created_utc), each.passport.progress.done) for each in checkpoints]
    for attempt in attempts:
        if not attempt.kind.is_before_work:
            times = attempt.times
            last = times.saved if attempt.kind is EndKind.DIED else times.last_step
            points.append((times.first_step or unix_seconds(attempt.started_utc), attempt.progress_from))
            points.append((last or unix_seconds(attempt.ended_utc), attempt.progress_to))
    if done is not None and points:
        points.append((now, done))
    return sorted(set(points))


def curves_of(places: RunFolder, checkpoints: Sequence[Checkpoint], unit: str) -> list[Curve]:
    """Return what there is to draw of a run, from the files that its program and its segments left."""
    found: dict[str, Curve] = {}
    if (places.live / METRICS_FILE).is_file():
        for row in _json_rows(places.live / METRICS_FILE):
            over = "step" if _is_number(row.get("step")) else "epoch"
            _add(found, over, row.get(over), row)
    else:
        for done, metrics in sorted(_recorded(places, checkpoints).items()):
            _add(found, unit, done, metrics)
    for row in _table_rows(places.final / ENERGY_TABLE):
        shown = {f"{name} ({UNITS[name]})": row[name] for name in SHOWN if name in row}
        _add(found, "ps", row.get("time_ps"), shown)
    # Two points make a line.
    drawn = [curve for curve in found.values() if sum(value is not None for _, value in curve.points) > 1]
    return drawn[:MOST_CURVES]


def _as_one(spans: Sequence[Span]) -> Span:
    """Return one span over all of these, of the kind that most of their time went into."""
    seconds: dict[Kind, float] = defaultdict(float)
    for span in spans:
        seconds[span.kind] += span.seconds
    return Span(max(seconds, key=lambda kind: seconds[kind]), spans[0].begin, spans[-1].end)


def _add(found: dict[str, Curve], over: str, at: object, values: Mapping[str, object]) -> None:
    if not _is_number(at):
        return
    for name, value in values.items():
        if name in _NO_CURVE or isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
            continue
        curve = found.setdefault(name, Curve(name, over))
        curve.points.append((float(at), float(value) if _is_number(value) else None))  # type: ignore[arg-type]


def _recorded(places: RunFolder, checkpoints: Sequence[Checkpoint]) -> dict[float, Mapping[str, object]]:
    """Return the metrics in the records of the segments and in the checkpoints that are kept, by progress."""
    records = map(read_record, sorted(places.segments.glob("*.json"))[-MOST_RECORDS:])
    rows: dict[float, Mapping[str, object]] = {each.progress.done: each.progress.metrics for each in records if each}
    return rows | {each.passport.progress.done: each.passport.progress.metrics for each in checkpoints}


def _json_rows(path: Path) -> Iterator[Mapping[str, object]]:
    for line in _lines(path):
        with suppress(ValueError, RecursionError):
            if isinstance(row := json.loads(line), dict):
                yield row


def _table_rows(path: Path) -> Iterator[Mapping[str, object]]:
    """Yield the rows of a tab-separated table of numbers with a line of names; none if there is no such file."""
    with suppress(OSError), path.open(errors="replace") as file:
        names = file.readline(LONGEST_LINE).rstrip("\n").split("\t")
        for line in _lines(path):
            with suppress(ValueError):
                yield dict(zip(names, map(float, line.split("\t")), strict=True))


def _lines(path: Path) -> Iterable[str]:
    """Return lines of a file, in order, of each kind as many as are drawn.

    A training logs few lines once an epoch; they must not get lost among those of its steps.
    """
    lines = list(_blocks(path))
    kinds: dict[int, list[int]] = defaultdict(list)
    for place, line in enumerate(lines):
        kinds[line.count('":')].append(place)
    chosen = [place for places in kinds.values() for place in thinned(places)]
    return (lines[place] for place in sorted(chosen))


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
