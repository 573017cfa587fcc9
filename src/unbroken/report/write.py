"""Writes the page of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbroken.errors import ConfigError
from unbroken.report.facts import Promise, folder_facts
from unbroken.report.known import known_names, no_config, runs_of
from unbroken.report.page import write_page
from unbroken.report.status import status_of
from unbroken.runs.run import Run
from unbroken.slurm.jobs_out import queue_of

NOBODY = Promise()


def write_report(
    base: Path, config: Path, only: Sequence[str], page: Path, promise: Promise = NOBODY, is_patient: bool = False
) -> None:
    """Writes the page of the runs that are named, of all if none is.

    ConfigError if there is none, or one is unknown, or, unless `is_patient`, if the configuration has mistakes;
    StorageError if the disk is in the way.
    """
    runs = _configured(base, config, is_patient)
    names = known_names(runs, only, base)
    if not names:
        raise no_config(base)
    queue = queue_of(base)
    rows = [status_of(name, base, runs.get(name), queue) for name in names]
    write_page(folder_facts(rows, runs, base, queue, page, promise), page)


def _configured(base: Path, config: Path, is_patient: bool) -> dict[str, Run]:
    """While somebody edits the configuration, the page goes by what the runs have left."""
    try:
        return {run.name: run for run in runs_of(base, config, must_exist=False)}
    except ConfigError:
        if is_patient:
            return {}
        raise
