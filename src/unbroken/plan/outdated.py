"""Records that stand in the way of what is still to do; segments make them anew in under a second.

Those that only passed a finish on, if the goal was raised since; the last one, if the results are gone, or if the goal
was lowered to what is done.  Snakemake
plans as if they were not there, and they are removed when its first job starts: a dry run lists what a start would do,
and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unbroken.runs.layout import RunFolder
from unbroken.runs.record import Record, read_record
from unbroken.runs.results import SUMMARY
from unbroken.runs.run import Run
from unbroken.runs.segment_end import EndKind


class Outdated:
    """The records of these runs that are to be made anew."""

    def __init__(self, runs: Iterable[Run], base: Path) -> None:
        self.paths = [path for run in runs for path in _outdated(RunFolder(run.name, base), run)]

    def hide(self) -> None:
        """From now on, until the first job starts, Snakemake does not see them.

        What it asks before that it keeps in its `iocache`, which is in use until the jobs are planned; in a dry run to
        the end (workflow.py of Snakemake 9.27, `Workflow.execute`).
        """
        from snakemake.io import _IOFile  # loads all of Snakemake, which `unbroken status` need not wait for

        hidden = {os.path.abspath(path) for path in self.paths}
        if not hidden:
            return
        really = _IOFile.exists_local

        async def exists_local(file: Any) -> bool:
            is_planning = file.rule.workflow.iocache.active
            if is_planning and os.path.abspath(file.file) in hidden:
                return False
            return bool(await really(file))

        setattr(_IOFile, "exists_local", exists_local)  # noqa: B010  (mypy: a method is not assigned to)

    def remove(self) -> None:
        """For a start that has planned its jobs."""
        for path in self.paths:
            path.unlink(missing_ok=True)


def last_record(places: RunFolder) -> Record | None:
    """The record of the last segment that has one."""
    paths = _record_paths(places)
    return read_record(paths[-1]) if paths else None


def has_finished(places: RunFolder, run: Run) -> bool:
    """True if the run has reached what its config asks for, and its results are there."""
    last = last_record(places)
    return (
        last is not None
        and last.kind is EndKind.FINISHED
        and _reaches(last, run)
        and (places.final / SUMMARY).is_file()
    )


def _outdated(places: RunFolder, run: Run) -> list[Path]:
    last = last_record(places)
    if last is None or has_finished(places, run):
        return []
    if last.kind is not EndKind.FINISHED:
        is_lowered = last.segment >= run.segments and run.is_past_goal(last.progress)
        return [places.record(run.segments)] if is_lowered else []
    if _reaches(last, run):
        return [places.record(min(last.segment, run.segments))]
    records = ((path, read_record(path)) for path in _record_paths(places))
    return [path for path, record in records if record is not None and not record.has_worked]


def _record_paths(places: RunFolder) -> list[Path]:
    found = places.segments.glob("*.json") if places.segments.is_dir() else []
    return sorted((path for path in found if path.stem.isdecimal()), key=lambda path: int(path.stem))


def _reaches(record: Record, run: Run) -> bool:
    return run.is_content_with(record.progress)
