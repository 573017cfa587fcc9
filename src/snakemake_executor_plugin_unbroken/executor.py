"""The executor: segments are chains (`chain`), everything else is handed to snakemake-executor-plugin-slurm.

Snakemake's main thread hands jobs over, a few threads submit them, and one thread looks after those that are out
(`check_active_jobs`).
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken.chain import NEVER, Chain
from snakemake_executor_plugin_unbroken.chain_specs import ChainHost
from snakemake_executor_plugin_unbroken.plain_jobs import PlainJobs
from snakemake_executor_plugin_unbroken.queue_watch import QueueWatch
from snakemake_executor_plugin_unbroken.segments import Segment, refuse_mistakes, work_of
from unbroken.job import array
from unbroken.job.array import Answer
from unbroken.job.control import cancel_runs
from unbroken.program.process import StopReason
from unbroken.snakemake_inside import give_up, is_told_to_end, jobs_before, planned_jobs
from unbroken.store import driver_start
from unbroken.store.layout import LOGS
from unbroken.system import log

# Each asks Slurm, which answers several at a time.
SUBMITTING_THREADS = 2
# How often the records of segments are looked for.
RECORD_SECONDS = 1.0
# At most this share of the time goes into looking, however many runs there are and however slow the file server is.
LOOKING_SHARE = 0.05
# Where a job of Snakemake's that is out has its segment, in `aux`.
SEGMENT = "unbroken"


class Executor(ChainHost):
    """Run the segments of each run as one job array, and take their records as their ends."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        settings = workflow.executor_settings
        # Before the thread starts that looks after jobs.
        self.is_detached = bool(workflow.remote_execution_settings.immediate_submit)
        self.latency_seconds = float(workflow.execution_settings.latency_wait)
        self._plain: PlainJobs | None = None
        self._queue = QueueWatch(settings.init_seconds_before_status_checks)
        self._chains: dict[str, Chain] = {}
        self._has_told_end = False
        self._screen = ExitStack()
        self._threads = ThreadPoolExecutor(SUBMITTING_THREADS, "unbroken-submit")
        super().__init__(workflow, logger)

    def __post_init__(self) -> None:
        leave_own_job()
        refuse_log_folder(self.workflow, LOGS)
        jobs = planned_jobs(self.workflow)
        refuse_mistakes({job.rule.name: job.rule for job in jobs}.values())
        if any(work_of(job) is None and not job.is_local for job in jobs):
            self._plain_jobs()  # settings that cannot work are refused before anything is queued
        if not driver_start.current():  # a workflow of a user's own, in which nothing has named it
            driver_start.begin()
            self._screen.enter_context(log.lines_to(self.log))
            atexit.register(self._screen.close)

    # --- in Snakemake's main thread ---

    def run_jobs(self, jobs: list[Any]) -> None:
        """Hand segments to their chains, and all other jobs to the Slurm plugin."""
        plain = list[Any]()
        for job in jobs:
            if (segment := work_of(job)) is None:
                plain.append(job)
                continue
            self.run_job_pre(job)
            if self.is_detached:  # each is in the queue before the next one is looked at
                self._add(job, segment)
            else:
                self.in_thread(self._add, job, segment)
        if plain:
            if self.is_detached:
                self._log_unordered(plain)
            self._plain_jobs().run_jobs(plain)

    def _log_unordered(self, jobs: Sequence[Any]) -> None:
        """Name the plain jobs that need files of a chain: without a driver no job waits for another one."""
        for job in jobs:
            if needed := {other.rule.name for other in jobs_before(self.workflow, job) if work_of(other)}:
                rules = ", ".join(sorted(needed))
                what = f"{job.rule.name}: needs files of rule {rules}; without a driver its job starts now"
                self.log(f"{what} and fails if they are not there after --latency-wait; then: the same command again")

    def run_job(self, job: Any) -> None:
        """Run one job, as `run_jobs` does."""
        self.run_jobs([job])

    def _add(self, job: Any, segment: Segment) -> None:
        """Add the job of a segment: it is done, or a job of its run does it, or one is submitted now, or later.

        Without a driver, wait until one is in the queue, which does all segments that follow.
        """
        info = SubmittedJobInfo(job, external_jobid=segment.key, aux={SEGMENT: segment})
        chain = self._chains.setdefault(segment.key, Chain(segment, self, self._queue))
        if not self.is_detached or chain.found is None:
            chain.add(info, segment)
            while self.is_detached and chain.due != NEVER:
                time.sleep(max(0.0, chain.due - time.monotonic()))
                chain.see_to(segment)
            if segment not in chain.active:
                return
        self.submitted(info)

    def _plain_jobs(self) -> PlainJobs:
        """Return the executor of plain jobs, which is made for the first one."""
        if self._plain is None:
            self._plain = PlainJobs(self.workflow, self.logger)
        return self._plain

    def in_thread(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function that may ask Slurm in a thread."""
        self._threads.submit(function, *arguments).add_done_callback(self._raise_in_scheduler)

    def _raise_in_scheduler(self, done: Future[None]) -> None:
        """Let an error of ours in a thread end the driver, which would wait for the job for ever."""
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self.workflow.scheduler.executor_error_callback(error)

    # --- in the thread that looks after jobs ---

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """End the jobs that are over, and yield the others; `active_jobs` are those of chains."""
        if self.is_detached:
            self.next_seconds_between_status_checks = 0.2  # nothing is waited for
            return
        if is_told_to_end(self.workflow):
            self._leave(active_jobs)
        else:
            for info in self.look_after(active_jobs):
                yield info
        if self._plain is not None:
            await self._plain.check()

    def look_after(self, infos: Sequence[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
        """Take the records that are there as ends of their jobs, look after the others, and return them."""
        began, names = time.monotonic(), cache(_names)
        for chain, segment, _ in self._active(infos):
            folder, name = os.path.split(segment.record)
            if name in names(folder) and segment.has_record():
                chain.log_pauses()
                chain.succeed(segment)
        took = time.monotonic() - began
        self.next_seconds_between_status_checks = max(RECORD_SECONDS, took / LOOKING_SHARE)
        waiting = [(chain, segment) for chain, segment, _ in self._active(infos)]
        self._look_into_queue(waiting)
        for chain, segment in waiting:
            if chain.due <= time.monotonic():
                chain.due = NEVER
                self.in_thread(chain.see_to, segment)
        return [info for _, _, info in self._active(infos)]

    def _active(self, infos: Iterable[SubmittedJobInfo]) -> list[tuple[Chain, Segment, SubmittedJobInfo]]:
        """Return the segments that are not over: a thread may have seen to one since it was listed."""
        found = [(self._chains[info.aux[SEGMENT].key], info.aux[SEGMENT], info) for info in infos]
        return [(chain, segment, info) for chain, segment, info in found if chain.active.get(segment) is info]

    def _look_into_queue(self, waiting: Sequence[tuple[Chain, Segment]]) -> None:
        watched = [(chain, segment) for chain, segment in waiting if chain.is_watched]
        jobs = self._queue.answer(self.log) if watched else None
        if jobs is None:
            return
        by_chain = array.by_chain(jobs)
        for chain, segment in watched:
            chain.log_pauses()
            if chain.take_answer(segment, by_chain.get(chain.key, [])):
                self._queue.hasten()

    # --- the end ---

    def _log_not_submitted(self) -> None:
        """Name the chains that Snakemake has not handed over: it skips local rules, and what needs their files."""
        planned = planned_jobs(self.workflow)
        skipped = {job for job in planned if job.is_local}
        for job in planned:
            if (segment := work_of(job)) is None or segment.key in self._chains:
                continue
            before = skipped.intersection(jobs_before(self.workflow, job))
            if rules := " ".join(sorted({other.rule.name for other in before})):
                what = f"{segment.chain_name}: not submitted: it needs files of rule {rules}, a local rule"
                self.log(f"{what}, which Snakemake skips without a driver; type: snakemake --until {rules}")

    def _leave(self, infos: Sequence[SubmittedJobInfo]) -> None:
        """Leave all jobs of chains in the queue, where the next start finds them: they need no driver."""
        if not self._has_told_end:
            self._has_told_end = True
            self.log("told to end (SIGTERM): the jobs of all runs stay in the queue and go on; next: snakemake")
        for chain, segment, info in self._active(infos):
            if chain.active.pop(segment, None) is info:  # no thread reports its end any more
                give_up(info.job)
                self.workflow.scheduler.error_callback(info.job)  # without the red lines of `report_job_error`

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel all jobs of the runs, also of those whose tasks run ahead, and all plain jobs.

        Also cancel those that the other thread is just looking at.  Running segments may save first.
        """
        chains = list(self._chains.values())  # a thread may add one
        keys = sorted(chain.key for chain in chains if chain.active or chain.found is not None)
        cancel_runs(keys, driver_start.current(), StopReason.CTRL_C.value)
        if self._plain is not None:
            self._plain.cancel_all()

    def shutdown(self) -> None:
        """Let what looks after jobs end, and submissions; then print the remaining messages."""
        super().shutdown()
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self._plain is not None:
            self._plain.shutdown()  # its last submissions, old logs, its report; no thread of it sleeps
        if self.is_detached:  # the user is about to log out
            self._log_not_submitted()
            found = [chain.found for chain in self._chains.values() if chain.found is not None]
            out = [done for done in found if done.answer is not Answer.FULL]
            if found or self._plain is not None:
                what = f"jobs of {len(out)} runs are" if found else "all jobs are"
                self.log(f"{what} in the queue, and you may log out; see: unbroken status")
        self._screen.close()


def _names(folder: str) -> frozenset[str]:
    """Return the names in a folder.

    It is listed, not each file asked for: on NFS opening a folder asks the server, while a file that was missing a
    moment ago may stay missing for a client for a minute.
    """
    try:
        return frozenset(os.listdir(folder))
    except OSError:  # not made yet, or the file server is away for a moment
        return frozenset()


def leave_own_job() -> None:
    """Forget the Slurm job around the driver, whose variables sbatch would take for options."""
    if "SLURM_JOB_ID" in os.environ:
        for name in [name for name in os.environ if name.startswith("SLURM_") and name != "SLURM_CONF"]:
            del os.environ[name]


def refuse_log_folder(workflow: Any, ours: Path) -> None:
    """Raise WorkflowError where logs of chains would lie in the plugin's log folder, in which it removes old ones."""
    plugins = Path(workflow.workdir_init, workflow.executor_settings.logdir or ".snakemake/slurm_logs").resolve()
    if Path(workflow.workdir_init, ours).resolve().is_relative_to(plugins):
        found = f"--unbroken-logdir: found {plugins}, in which the Slurm plugin removes old logs; it contains {ours}"
        raise WorkflowError(f"{found}; choose another folder, such as .snakemake/slurm_logs")
