"""Find the trainings that have something to show in the Snakemake report."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from unbroken.runs.layout import RunFolder
from unbroken.runs.run import RunSpec
from unbroken.training.core.live_log import METRICS_FILE, TIMING_FILE


def report_targets(runs: Iterable[RunSpec], base: Path) -> list[str]:
    """Return the plots of the runs that have logged metrics and times by now, finished or not."""
    places = [RunFolder(run.name) for run in runs]
    noted = [
        place for place in places if all((base / place.live / name).is_file() for name in (METRICS_FILE, TIMING_FILE))
    ]
    return [str(place.root / "report" / "metrics.svg") for place in noted]
