"""Write a training's metrics and times into its folder of live files, while it runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbroken.store.layout import RunFolder
from unbroken.training.core.metrics import Metrics
from unbroken.training.loggers import JsonLines, read_lines

if TYPE_CHECKING:
    from unbroken.store.run import RunSpec

METRICS_FILE = "metrics.jsonl"
TIMING_FILE = "timing.jsonl"


class Live:
    """Write the folder `results/<run>/live` in one process: files for `tail -F` and `pandas.read_json(lines=True)`.

    They are ahead of the checkpoints, and each start brings them back to the one from which it resumes.
    """

    def __init__(self, folder: Path) -> None:
        self._metrics, self._timing = JsonLines(folder / METRICS_FILE), JsonLines(folder / TIMING_FILE)
        self._written = 0  # rows of the metrics that are in the file

    def cut_back(self, metrics: Metrics, step: int) -> Mapping[str, Any] | None:
        """Remove what is after the step and the metrics to resume from; return the last times before it."""
        self._written = max(0, metrics.size - 1)  # the last row may still grow
        self._metrics.become(metrics.table(0, self._written))
        kept = [line for line in read_lines(self._timing.path) if line.get("step", math.inf) <= step]
        self._timing.become(kept)
        return kept[-1] if kept else None

    def write(self, metrics: Metrics, *, is_over: bool = False) -> None:
        """Append the rows that are new and complete; the last one is so only when all is over."""
        end = metrics.size if is_over else metrics.size - 1
        if end > self._written:
            self._metrics.append(*metrics.table(self._written, end))
            self._written = end

    def note_times(self, line: Mapping[str, Any]) -> None:
        """Add a line to the times; it names the step."""
        self._timing.append(line)


def report_targets(runs: Iterable[RunSpec], base: Path) -> list[str]:
    """Return the plots in the Snakemake report: of the runs that have logged metrics and times by now."""
    folders = [RunFolder(run.name) for run in runs]
    files = (METRICS_FILE, TIMING_FILE)
    noted = [each for each in folders if all((base / each.live / name).is_file() for name in files)]
    return [str(each.root / "report" / "metrics.svg") for each in noted]
