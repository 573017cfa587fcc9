"""Do a driver's work besides Snakemake's jobs: before the first one, while they run, and at its end."""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from unbroken.errors import UnbrokenError
from unbroken.job import background
from unbroken.job.attempt import Assignment, segment_of
from unbroken.job.background import PageProcess
from unbroken.plan import ctrl_c
from unbroken.plan.driver_lines import show_full_disk_at_exit, show_until_the_end, unrehearsed
from unbroken.plan.load import refuse_missing_site
from unbroken.plan.plan import Plan
from unbroken.plan.slurm_jobs import unused_least_minutes
from unbroken.snakemake_inside import jobs_behind, leave_out
from unbroken.store.history import EndKind
from unbroken.store.layout import NOTES, RunFolder
from unbroken.store.record import read_record, settle_rest

logger = logging.getLogger(__name__)
MINUTE = 60.0
WRITER = "The snakemake that drives these runs"
LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 30.0  # the driver's end waits for the last page


class Driver:
    """A snakemake that drives the runs of a plan."""

    def __init__(self, plan: Plan, workflow: Any, config: Mapping[str, object]) -> None:
        self._plan, self._workflow, self._config = plan, workflow, config
        self._names = {run.name for run in plan.runs}
        self._page = PageWriter(plan.base)
        if workflow.is_main_process:
            show_until_the_end()

    def start(self) -> None:
        """Refuse mistakes, remove outdated records and log warnings before the first job; then follow the jobs."""
        plan, runs = self._plan, self._plan.runs
        executor = self._workflow.executor_plugin.name
        refuse_missing_site(plan, executor)
        _keep_private(plan.base, self._workflow.configfiles)
        show_full_disk_at_exit(plan.base)
        plan.remove_outdated()
        for line in [*unrehearsed(runs, plan.base), *unused_least_minutes(runs, executor)]:
            logger.warning(line)
        background.want_notifications(is_wanted=bool(self._config.get("notify")), base=plan.base)
        leave_out(self._workflow, self._left_over)
        ctrl_c.listen(runs)
        self._page.begin(self._config)

    def end(self) -> None:
        """Log the state of each unfinished run, unless jobs continue without a driver; write the last page."""
        if not self._workflow.remote_execution_settings.immediate_submit:
            self._plan.report()
            background.notify(self._plan.base, is_over=True)
        self._page.end()

    def _left_over(self, job: Any) -> list[Any]:
        """Return the jobs behind the one that reached a run's goal, in order, and write their records; mostly none."""
        assignment, number = segment_of(job) or (None, 0)
        if assignment is None or assignment.run.name not in self._names:
            return []
        run = assignment.run
        # Where a job still holds the run, or the file server is away for a moment, the next segment is a job as usual.
        with suppress(UnbrokenError, OSError):
            record = read_record(RunFolder(run.name).record(number))
            if record is None or record.kind is not EndKind.FINISHED:
                return []
            left = list(_segments_behind(self._workflow, job, assignment, number))
            if left and settle_rest(run, range(number + 1, number + 1 + len(left))):
                return left
        return []


def _segments_behind(workflow: Any, job: Any, assignment: Assignment, number: int) -> Iterator[Any]:
    """Yield the planned jobs of the segments of a run behind the one of a job, in their order."""
    while found := [each for each in jobs_behind(workflow, job) if segment_of(each) == (assignment, number + 1)]:
        job, number = found[0], number + 1
        yield job


class PageWriter:
    """A thread of the driver that has `results/report.html` written once a minute, by a process of its own."""

    def __init__(self, base: Path) -> None:
        self._base, self._page = base, PageProcess(base, WRITER)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="report", daemon=True)

    def begin(self, config: Mapping[str, object]) -> None:
        """Keep the page fresh until `end`."""
        if not background.is_page_off():
            background.keep_config(config, self._base)
            self._thread.start()

    def end(self) -> None:
        """Write the page a last time, and return when it is there; do nothing where it is not wanted."""
        if self._thread.is_alive():
            self._end.set()
            self._thread.join(PATIENCE_SECONDS)
            self._page.wait(PATIENCE_SECONDS)
            self._page.begin(0.0)
            self._page.wait(PATIENCE_SECONDS)

    def _watch(self) -> None:
        self._page.begin(MINUTE)
        while not self._end.wait(LOOK_SECONDS):
            self._page.begin(MINUTE)


def written_page(base: Path) -> list[str]:
    """Return the page of all runs, as an input that exists: empty before the first one is written."""
    return [str(background.PAGE)] if (base / background.PAGE).is_file() else []


def _keep_private(base: Path, configs: Iterable[str | Path]) -> None:
    """Take from the folder of notes the rights that one of these files does not give: it holds copies of parts of them.

    For example the configuration, commands, and what they printed.
    """
    refused = 0
    for path in configs:
        with suppress(OSError):
            mode = os.stat(base / path).st_mode
            refused |= (0 if mode & stat.S_IRGRP else stat.S_IRWXG) | (0 if mode & stat.S_IROTH else stat.S_IRWXO)
    if refused:
        folder = base / NOTES
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(PermissionError):  # another user's
            os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode) & ~refused)
