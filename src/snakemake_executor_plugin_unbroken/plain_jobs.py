"""Jobs that are no chain: the Slurm plugin's own executor submits, watches and cancels them, in our executor's loop.

Two things are our own, because without them a driver waits for ever: jobs whose end the plugin does not recognize, and
jobs that it keeps for an array that never fills.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from snakemake_executor_plugin_unbroken.slurm_plugin import OTHER_CLUSTER, HeldExecutor, log_folder
from unbroken.slurm.queue import ended_states, my_jobs
from unbroken.slurm.states import ALIVE

# Jobs for which the plugin expects more of the same rule are submitted after that: there may be none to come.
OFFER_SECONDS = 10.0
# A job that neither squeue nor sacct knows: accounting may be away, and know the end when it is back.
UNKNOWN = "UNKNOWN"
UNKNOWN_SECONDS = 900.0


class PlainJobs:
    """The plain jobs of an executor, which calls `check` about once a second, and gets their reports."""

    def __init__(self, executor: RemoteExecutor) -> None:
        self._executor = executor
        self._held: HeldExecutor | None = None
        self._lock = threading.Lock()
        self._out: dict[str, SubmittedJobInfo] = {}
        self._overlooked: dict[str, float] = {}  # since when Slurm knows them as over, by time.monotonic()
        self._due = self._offer_due = math.inf

    # --- called by the executor ---

    def prepare(self) -> HeldExecutor:
        """Make the plugin's executor, if it is not there yet; WorkflowError where its settings cannot work."""
        if self._held is None:
            self._held = HeldExecutor(self._executor.workflow, self._executor.logger, self)
        return self._held

    def run_jobs(self, jobs: Sequence[Any]) -> None:
        """Announce and submit jobs in the plugin's own threads, as arrays where `array_jobs` asks for that."""
        if self.prepare().offer(jobs):
            self._offer_due = min(self._offer_due, time.monotonic() + OFFER_SECONDS)

    def run_job(self, job: Any) -> None:
        """Submit one job that was announced (`run_job_pre`) already, in this thread."""
        self.prepare().run_job(job)

    def has(self, info: SubmittedJobInfo) -> bool:
        """Return True for a plain job that is out."""
        with self._lock:
            return info.external_jobid in self._out

    async def check(self, active_jobs: Sequence[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report the plain jobs that are over and yield the others; Slurm is asked at the plugin's own pace."""
        held, active = self._held, list(active_jobs)
        if held is not None and time.monotonic() >= self._offer_due:
            self._offer_due = math.inf
            held.submit_offered()
        if held is not None and time.monotonic() >= self._due:  # it begins at its first interval if none is active
            _ = [info async for info in held.check_active_jobs(active)]
            self._due = time.monotonic() + held.next_seconds_between_status_checks
            # It yields none at all where sacct fails: a job is over when it was reported.
            active = self._without_overlooked([info for info in active if self.has(info)])
        for info in active:
            yield info

    def cancel(self, active_jobs: Sequence[SubmittedJobInfo]) -> None:
        """Cancel the jobs, also those that `check` is looking at just now, and submit no further ones."""
        if self._held is not None:
            self._offer_due = math.inf
            with self._lock:
                infos = {info.external_jobid: info for info in [*active_jobs, *self._out.values()]}
            self._held.cancel_jobs(list(infos.values()))

    def shutdown(self) -> None:
        """Let the plugin end: its last submissions, old logs, its report. It waits for no thread that sleeps."""
        if self._held is not None:
            self._held.shutdown()

    # --- called by the plugin's executor ---

    def report_job_submission(self, job_info: SubmittedJobInfo, register_job: bool = True) -> None:
        """Report that a job is out; it is asked for after the plugin's first interval."""
        first = float(self._executor.workflow.executor_settings.init_seconds_before_status_checks)
        with self._lock:
            self._out[str(job_info.external_jobid)] = job_info
            self._due = min(self._due, time.monotonic() + first)
        self._executor.report_job_submission(job_info, register_job)

    def report_job_success(self, job_info: SubmittedJobInfo) -> None:
        """Report that a job went well."""
        self._forget(job_info)
        self._executor.report_job_success(job_info)

    def report_job_error(self, job_info: SubmittedJobInfo, msg: str | None = None, **more: Any) -> None:
        """Report that a job failed."""
        self._forget(job_info)
        self._executor.report_job_error(job_info, msg, **more)

    # --- inside ---

    def _forget(self, info: SubmittedJobInfo) -> None:
        with self._lock:
            self._out.pop(str(info.external_jobid), None)

    def _without_overlooked(self, infos: list[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
        """End the jobs that are over for Slurm and that the plugin took for active twice; return the others.

        It does not know "CANCELLED by 1000", PREEMPTED, or a job of which accounting has nothing.
        """
        ended, now = _ended([info for info in infos if not _is_elsewhere(info)]), time.monotonic()
        seen, self._overlooked = self._overlooked, {job_id: self._overlooked.get(job_id, now) for job_id in ended}
        for info in infos:
            job_id = str(info.external_jobid)
            state, since = ended.get(job_id), seen.get(job_id)
            if state is not None and since is not None and (state != UNKNOWN or now - since > UNKNOWN_SECONDS):
                self._end(info, state)
        return [info for info in infos if self.has(info)]

    def _end(self, info: SubmittedJobInfo, state: str) -> None:
        if state == "COMPLETED":
            self.report_job_success(info)
            return
        logs = [str(log) for log in (info.aux or {}).values()]  # of Slurm
        self.report_job_error(info, f"SLURM-job '{info.external_jobid}' ended: {state}. ", aux_logs=logs)


def refuse_log_folder(workflow: Any, ours: Path) -> None:
    """Raise WorkflowError where logs of chains would lie in the plugin's log folder, in which it removes old ones."""
    plugins = log_folder(workflow)
    if Path(workflow.workdir_init, ours).resolve().is_relative_to(plugins):
        found = f"--unbroken-logdir: found {plugins}, in which the Slurm plugin removes old logs; it contains {ours}"
        raise WorkflowError(f"{found}; choose another folder, such as .snakemake/slurm_logs")


def _is_elsewhere(info: SubmittedJobInfo) -> bool:
    """Return True for a job on another cluster, of which squeue here knows nothing."""
    return any(info.job.resources.get(name) for name in OTHER_CLUSTER)


def _ended(infos: Sequence[SubmittedJobInfo]) -> dict[str, str]:
    """Return how jobs ended, by their numbers, as the controller or accounting says; those alive are left out."""
    if not infos or (queue := my_jobs()) is None:
        return {}
    shown = {job.job_id: job.state for job in queue}
    numbers = [str(info.external_jobid) for info in infos]
    gone = [number for number in numbers if number not in shown]
    known = dict.fromkeys(gone, UNKNOWN) | ended_states(gone)
    known |= {number: shown[number] for number in numbers if number in shown}
    return {number: state for number, state in known.items() if state not in ALIVE}
