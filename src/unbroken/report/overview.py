"""The overview: one row a run with its results and its cost, for programs that read tables."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from unbroken.report.status import status_of
from unbroken.runs.history import History
from unbroken.runs.layout import RunFolder
from unbroken.runs.run import Run
from unbroken.runs.segment_end import EndKind


def overview_rows(runs: Iterable[Run], base: Path) -> list[dict[str, object]]:
    """Return the rows in the order of the configuration, read from the run folders below `base`."""
    return [_row(run, base) for run in runs]


def evidence(runs: Iterable[Run], base: Path) -> list[str]:
    """Return the files that the overview is read from, as far as they are there yet."""
    paths = [RunFolder(run.name).history for run in runs]
    return [str(path) for path in paths if (base / path).is_file()]


def _row(run: Run, base: Path) -> dict[str, object]:
    status = status_of(run.name, base, run)
    progress = status.progress
    attempts = History(RunFolder(run.name, base).history).attempts()
    return {
        "run": run.name,
        "engine": run.engine,
        "state": status.state.value,
        "done": progress.done if progress else 0.0,
        "goal": progress.goal if progress else run.goal,
        "unit": progress.unit if progress else "",
        "segments_used": status.segments_used,
        "segments": run.segments,
        "attempts": len(attempts),
        "killed": sum(attempt.kind is EndKind.DIED for attempt in attempts),  # with their job
        "work_hours": round(sum(attempt.work_seconds for attempt in attempts) / 3600, 4),
        "checkpoint": status.checkpoint or "",
        "note": run.note,
        "doubts": "; ".join(status.doubts),  # why the results may not be those of one uninterrupted run
    }
