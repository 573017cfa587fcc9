"""Write a training's metrics and times as JSON lines while it runs; standard library alone."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbroken.store.layout import RunFolder
from unbroken.system import fs
from unbroken.training.core.metrics import Metrics

if TYPE_CHECKING:
    from unbroken.store.run import RunSpec

METRICS_FILE = "metrics.jsonl"
TIMING_FILE = "timing.jsonl"


class Live:
    """Write the folder `results/<run>/live` in one process: files for `tail -f` and `pandas.read_json(lines=True)`.

    They are for watching.  The truth is in the checkpoints, and each start brings the files back to the one from which
    it resumes.
    """

    def __init__(self, folder: Path) -> None:
        self._metrics, self._timing = folder / METRICS_FILE, folder / TIMING_FILE
        self._written = 0  # rows of the metrics that are in the file

    def cut_back(self, metrics: Metrics, step: int) -> Mapping[str, Any] | None:
        """Remove what is after the step and the metrics to resume from; return the last times before it."""
        self._metrics.parent.mkdir(parents=True, exist_ok=True)
        self._written = max(0, metrics.size - 1)  # the last row may still grow
        _become(self._metrics, _lines(metrics, 0, self._written))
        kept = [line for line in _read_lines(self._timing) if line.get("step", math.inf) <= step]
        _become(self._timing, "".join(json.dumps(line) + "\n" for line in kept))
        return kept[-1] if kept else None

    def write(self, metrics: Metrics, *, is_over: bool = False) -> None:
        """Append the rows that are new and complete; the last one is so only when all is over."""
        end = metrics.size if is_over else metrics.size - 1
        if end > self._written:
            _append(self._metrics, _lines(metrics, self._written, end))
            self._written = end

    def note_times(self, line: Mapping[str, Any]) -> None:
        """Add a line to the times; it names the step."""
        _append(self._timing, json.dumps(line) + "\n")


def _lines(metrics: Metrics, start: int, end: int) -> str:
    return "".join(json.dumps(_plain(row)) + "\n" for row in metrics.table(start, end))


def _plain(row: Mapping[str, float]) -> dict[str, float | None]:
    """Return the row for JSON, which has neither NaN nor infinity; pandas reads null as NaN."""
    return {name: value if math.isfinite(value) else None for name, value in row.items()}


def _become(path: Path, text: str) -> None:
    """Make the file hold the text alone; a reader that follows it keeps it if it began so."""
    data = text.encode()
    try:
        with path.open("rb") as file:
            begins_so = file.read(len(data)) == data
    except FileNotFoundError:
        begins_so = False
    if begins_so:
        os.truncate(path, len(data))
    else:
        fs.write_atomic(path, text)


def _append(path: Path, text: str) -> None:
    with fs.storage_errors(path, len(text)), path.open("a") as file:
        file.write(text)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines that are complete; a kill may have torn the last one."""
    found = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict):
            found.append(data)
    return found


def report_targets(runs: Iterable[RunSpec], base: Path) -> list[str]:
    """Return the plots in the Snakemake report: of the runs that have logged metrics and times by now."""
    folders = [RunFolder(run.name) for run in runs]
    files = (METRICS_FILE, TIMING_FILE)
    noted = [each for each in folders if all((base / each.live / name).is_file() for name in files)]
    return [str(each.root / "report" / "metrics.svg") for each in noted]
