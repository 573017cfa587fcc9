"""The executor: segments are chains (`chains`), everything else is handed to snakemake-executor-plugin-slurm.

Snakemake's main thread hands jobs over, a few threads submit them, and one thread looks after those that are out
(`check_active_jobs`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken.chain_specs import ChainSpecs, ChainWords
from snakemake_executor_plugin_unbroken.chains import Chains, segment_of
from snakemake_executor_plugin_unbroken.plain_jobs import PlainJobs, refuse_log_folder
from snakemake_executor_plugin_unbroken.queue_watch import QueueWatch
from snakemake_executor_plugin_unbroken.segments import Segment, refuse_mistakes, work_of
from snakemake_executor_plugin_unbroken.slurm_plugin import (
    OTHER_CLUSTER,
    BatchStepExecutor,
    is_told_to_end,
    leave_own_job,
)
from snakemake_executor_plugin_unbroken.snakemake_jobs import give_up, leave_to_next_start, note_began
from unbroken.runs import driver_start
from unbroken.runs.attempts import began_unix
from unbroken.runs.layout import LOGS

# Each asks Slurm, which answers several at a time.
SUBMITTING_THREADS = 2


class Executor(BatchStepExecutor):
    """Runs the segments of each run as one job array, and takes their records as their ends."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        settings = workflow.executor_settings
        # Before the thread starts that looks after jobs.
        self.is_detached = bool(workflow.remote_execution_settings.immediate_submit)  # it only submits
        self.latency_seconds = float(workflow.execution_settings.latency_wait)  # until a file is seen here
        self._plain = PlainJobs(self)
        self._queue = QueueWatch(settings.init_seconds_before_status_checks)
        specs = ChainSpecs(self, ChainWords(self), settings.ahead)
        self._chains = Chains(self, specs, self._queue, settings.record_seconds)
        self._has_told_end = False
        self._threads = ThreadPoolExecutor(SUBMITTING_THREADS, "unbroken-submit")
        super().__init__(workflow, logger)

    def __post_init__(self) -> None:
        leave_own_job()
        refuse_log_folder(self.workflow, LOGS)
        _refuse_other_clusters(self.workflow.rules)
        jobs = list(self.workflow.dag.needrun_jobs())
        refuse_mistakes({job.rule.name: job.rule for job in jobs}.values())
        if any(work_of(job) is None and not job.is_local for job in jobs):
            self._plain.prepare()  # settings that cannot work are refused before anything is queued
        if not driver_start.current():  # a workflow of a user's own, in which nothing has named it
            driver_start.begin()

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
                self._chains.add(job, segment)
            else:
                self.in_thread(self._chains.add, job, segment)
        if plain:
            if self.is_detached:
                self._say_unordered(plain)
            self._plain.run_jobs(plain)

    def _say_unordered(self, jobs: Sequence[Any]) -> None:
        """Name the plain jobs that need files of a chain: without a driver no job waits for another one."""
        for job in jobs:
            needed = [] if job.is_group() else self.workflow.dag.dependencies.get(job, {})
            if rules := sorted({other.rule.name for other in needed if work_of(other) is not None}):
                what = f"{job.rule.name}: needs files of rule {', '.join(rules)}; without a driver its job starts now"
                self.log(f"{what} and fails if they are not there after --latency-wait; then: the same command again")

    def run_job(self, job: Any) -> None:
        """See to one job that was announced already, in this thread."""
        segment = work_of(job)
        if segment is not None:
            self._chains.add(job, segment)
        else:
            self._plain.run_job(job)

    # --- what chains ask of us ---

    def jobs_of_run(self, run: str) -> list[tuple[Segment, Any]]:
        """Return all segments of a run that Snakemake is to run, in their order, with their jobs."""
        found = [(segment, job) for job in self.workflow.dag.needrun_jobs() if (segment := work_of(job)) is not None]
        return sorted([pair for pair in found if pair[0].key == run], key=lambda pair: pair[0].number)

    def in_thread(self, function: Callable[..., None], *arguments: object) -> None:
        """Let a thread call something that may ask Slurm."""
        self._threads.submit(function, *arguments).add_done_callback(self._raise_in_scheduler)

    def _raise_in_scheduler(self, done: Future[None]) -> None:
        """Let an error of ours in a thread end the driver, which would wait for the job for ever."""
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self.workflow.scheduler.executor_error_callback(error)

    def submitted(self, info: SubmittedJobInfo) -> None:
        """Report that a job of the chain does the segment; without a driver Snakemake goes on at that."""
        self.report_job_submission(info, register_job=not self.is_detached)

    def succeeded(self, info: SubmittedJobInfo, segment: Segment) -> None:
        """Report that the segment's record is there."""
        if self.is_detached:
            self.submitted(info)
        elif began := began_unix(segment.places, segment.number):
            note_began(info.job, began)
        self.report_job_success(info)

    def failed(self, info: SubmittedJobInfo, line: str, is_final: bool, logs: Sequence[str]) -> None:
        """Report that the segment failed, in one line why."""
        if is_final:
            give_up(info.job)
        self.log(line)
        self.report_job_error(info, aux_logs=list(logs))

    def log(self, line: str) -> None:
        """Print a line of ours among Snakemake's."""
        self.logger.info(f"unbroken: {line}")

    # --- in the thread that looks after jobs ---

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """End the jobs that are over, and yield the others."""
        if self.is_detached:
            self.next_seconds_between_status_checks = 0.2  # nothing is waited for
            return
        segments = [info for info in active_jobs if segment_of(info) is not None]
        if is_told_to_end(self.workflow):
            self._leave(segments)
        else:
            for info in self._chains.check(segments):
                yield info
        async for info in self._plain.check([info for info in active_jobs if segment_of(info) is None]):
            yield info
        self.next_seconds_between_status_checks = self._chains.interval_seconds

    def _leave(self, infos: Sequence[SubmittedJobInfo]) -> None:
        """Leave all jobs of chains in the queue, where the next start finds them: they need no driver."""
        if not self._has_told_end:
            self._has_told_end = True
            self.log("told to end (SIGTERM): the jobs of all runs stay in the queue and go on; next: snakemake")
        for info in self._chains.leave(infos):
            leave_to_next_start(self.workflow, info.job)

    # --- the end ---

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel all jobs of the runs, also those that the other thread is just looking at, and all plain jobs."""
        self._chains.cancel()
        self._plain.cancel([info for info in active_jobs if segment_of(info) is None])

    def shutdown(self) -> None:
        """Let what looks after jobs end, and submissions; then print what is left to say."""
        super().shutdown()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._plain.shutdown()
        self._queue.end()
        if self.is_detached:
            self.log(self._chains.summary())


def _refuse_other_clusters(rules: Iterable[Any]) -> None:
    """Raise WorkflowError if segments would go elsewhere: squeue and scancel would ask here, and find none."""
    for rule in rules:
        if "assignment" in dict(rule.params.items()) and (asked := set(OTHER_CLUSTER) & set(rule.resources)):
            found = f"unbroken: resources: found {', '.join(sorted(asked))}, allowed: none of these"
            raise WorkflowError(f"{found}; start snakemake on a login node of that cluster")
