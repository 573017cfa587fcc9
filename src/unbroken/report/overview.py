"""The overview: one row a run with what it came to and what it cost, for programs that read tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from unbroken.report.status import status_of
from unbroken.runs.history import History
from unbroken.runs.layout import RunFolder
from unbroken.runs.run import Run
from unbroken.runs.segment_end import EndKind


@dataclass(frozen=True)
class OverviewRow:
    """One run; `work_hours` is the time of all attempts, `killed` how many of them were killed with their job."""

    run: str
    engine: str
    state: str
    done: float
    goal: float | None
    unit: str
    segments_used: int
    segments: int
    attempts: int
    killed: int
    work_hours: float
    checkpoint: str
    note: str
    doubts: str  # why the results may not be those of one uninterrupted run


def overview_rows(runs: Iterable[Run], base: Path) -> list[OverviewRow]:
    """The rows in the order of the configuration, read from the run folders below `base`."""
    return [_row(run, base) for run in runs]


def evidence(runs: Iterable[Run], base: Path) -> list[str]:
    """The files that the overview is read from, as far as they are there yet."""
    paths = [RunFolder(run.name).history for run in runs]
    return [str(path) for path in paths if (base / path).is_file()]


def _row(run: Run, base: Path) -> OverviewRow:
    status = status_of(run.name, base, run)
    attempts = History(RunFolder(run.name, base).history).attempts()
    return OverviewRow(
        run=run.name,
        engine=run.engine,
        state=status.state.value,
        done=status.progress.done if status.progress else 0.0,
        goal=status.progress.goal if status.progress else run.goal,
        unit=status.progress.unit if status.progress else "",
        segments_used=status.segments_used,
        segments=run.segments,
        attempts=len(attempts),
        killed=sum(attempt.kind is EndKind.DIED for attempt in attempts),
        work_hours=round(sum(attempt.work_seconds for attempt in attempts) / 3600, 4),
        checkpoint=status.checkpoint or "",
        note=run.note,
        doubts="; ".join(status.doubts),
    )
