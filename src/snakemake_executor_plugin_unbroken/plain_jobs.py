"""Jobs that are no chain: the Slurm plugin's own executor submits, watches and cancels them, in our executor's loop.

Three things are our own, because without them a driver waits for ever: jobs whose end the plugin does not recognize,
jobs that it keeps for an array that never fills, and groups that it cannot submit.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Any

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken.slurm_plugin import HeldExecutor
from unbroken.slurm.job import ALIVE
from unbroken.slurm.queue import jobs_by_accounting, my_jobs

# Jobs for which the plugin expects more of the same rule are submitted after that: there may be none to come.
OFFER_SECONDS = 10.0
# A job that neither squeue nor sacct knows: accounting may be away, and know the end when it is back.
UNKNOWN = "UNKNOWN"
UNKNOWN_SECONDS = 900.0


class PlainJobs(HeldExecutor):
    """The plain jobs of an executor, which calls `check` about once a second."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        self._offered, self._offers = list[Any](), threading.Lock()
        self._overlooked: dict[str, float] = {}  # since when Slurm knows them as over, by time.monotonic()
        self._due = self._offer_due = math.inf
        if workflow.remote_execution_settings.immediate_submit:
            # With old logs the plugin removes empty folders, which jobs that wait in the queue need to start.
            workflow.executor_settings.delete_logfiles_older_than = 0
        super().__init__(workflow, logger)

    # --- in Snakemake's main thread, and in the plugin's own threads ---

    def run_jobs(self, jobs: Sequence[Any]) -> None:
        """Announce and submit jobs, as arrays where `array_jobs` asks for that."""
        with self._offers:
            self._offered += jobs
            super().run_jobs(list(self._offered))
            if self.workflow.remote_execution_settings.immediate_submit:  # nothing looks after them later
                self._submit_kept()
            elif self._offered:
                self._offer_due = min(self._offer_due, time.monotonic() + OFFER_SECONDS)

    def _submit_kept(self) -> None:
        """Submit one by one what the plugin keeps until more jobs of the same rule come."""
        for job in list(self._offered):
            self.submit_single(job)

    def run_job_pre(self, job: Any) -> None:
        """Note that the plugin takes this job: it calls this once for each job that it submits."""
        self._offered = [other for other in self._offered if other is not job]
        super().run_job_pre(job)

    def run_job(self, job: Any) -> None:
        """Submit one job; the plugin's handler fails for a group, which has no `rule`, and nothing is reported."""
        try:
            super().run_job(job)
        except AttributeError as error:
            self.report_job_error(SubmittedJobInfo(job), f"Job submission failed: {error.__context__ or error}. ")

    def report_job_submission(self, job_info: SubmittedJobInfo, register_job: bool = True) -> None:  # noqa: FBT001, FBT002
        """Report that a job is out; it is asked for after the plugin's first interval."""
        super().report_job_submission(job_info, register_job)
        self._ask_soon()

    def _ask_soon(self) -> None:
        """Let the next question come after the plugin's first interval, at the latest."""
        first = float(self.workflow.executor_settings.init_seconds_before_status_checks)
        self._due = min(self._due, time.monotonic() + first)

    # --- in the loop of the other executor ---

    async def check(self) -> None:
        """Report the jobs that are over; Slurm is asked at the plugin's own pace."""
        if time.monotonic() >= self._offer_due:
            self._offer_due = math.inf
            with self._offers:
                self._submit_kept()
        if time.monotonic() >= self._due:  # it begins at its first interval if none is active
            # It yields none at all where sacct fails: a job is over when it was reported.
            _ = [info async for info in self.check_active_jobs(self._active())]
            self._due = time.monotonic() + self.next_seconds_between_status_checks
            self._end_overlooked()

    def report_job_success(self, job_info: SubmittedJobInfo) -> None:
        """Report that a job went well."""
        self._forget(job_info)
        super().report_job_success(job_info)

    def report_job_error(self, job_info: SubmittedJobInfo, msg: str | None = None, **more: Any) -> None:
        """Report that a job failed."""
        self._forget(job_info)
        super().report_job_error(job_info, msg, **more)

    def cancel_all(self) -> None:
        """Cancel the jobs, also those that `check` is looking at just now, and submit no further ones."""
        self._offer_due = math.inf
        self.cancel_jobs(self._active())

    def _active(self) -> list[SubmittedJobInfo]:
        with self.lock:
            return list(self.active_jobs)

    def _forget(self, info: SubmittedJobInfo) -> None:
        with self.lock:
            self.active_jobs[:] = [other for other in self.active_jobs if other is not info]

    def _end_overlooked(self) -> None:
        """End the jobs that are over for Slurm and that the plugin took for active twice.

        It does not know "CANCELLED by 1000", PREEMPTED, or a job that accounting does not list.
        """
        infos = {str(info.external_jobid): info for info in self._active()}
        ended, now, seen = _ended(list(infos)), time.monotonic(), self._overlooked
        self._overlooked = {number: seen.get(number, now) for number in ended}
        for number, state in ended.items():
            if state == UNKNOWN and now - seen.get(number, now) <= UNKNOWN_SECONDS:
                continue
            if number not in seen:
                self._ask_soon()
            elif state == "COMPLETED":
                self.report_job_success(infos[number])
            else:
                logs = [str(log) for log in (infos[number].aux or {}).values()]  # of Slurm
                self.report_job_error(infos[number], f"SLURM-job '{number}' ended: {state}. ", aux_logs=logs)


def _ended(numbers: Sequence[str]) -> dict[str, str]:
    """Return how jobs ended, by their numbers, as the controller or accounting says; those alive are left out."""
    if not numbers or (queue := my_jobs()) is None:
        return {}
    shown = {job.job_id for job in queue}
    forgotten = jobs_by_accounting([number for number in numbers if number not in shown])
    states = {job.job_id: job.state for job in (*forgotten, *queue)}
    return {number: state for number in numbers if (state := states.get(number, UNKNOWN)) not in ALIVE}
