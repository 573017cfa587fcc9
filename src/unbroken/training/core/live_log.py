"""Name the files that a training writes while it runs; standard library alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from unbroken.store.layout import RunFolder

if TYPE_CHECKING:
    from unbroken.store.run import RunSpec

METRICS_FILE = "metrics.jsonl"
TIMING_FILE = "timing.jsonl"


def report_targets(runs: Iterable[RunSpec], base: Path) -> list[str]:
    """Return the plots in the Snakemake report: of the runs that have logged metrics and times by now."""
    folders = [RunFolder(run.name) for run in runs]
    files = (METRICS_FILE, TIMING_FILE)
    noted = [each for each in folders if all((base / each.live / name).is_file() for name in files)]
    return [str(each.root / "report" / "metrics.svg") for each in noted]
