"""The executor: segments are chains (`chains`), everything else is handed to snakemake-executor-plugin-slurm.

Snakemake's main thread hands jobs over, a few threads submit them, and one thread looks after those that are out
(`check_active_jobs`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken.chain_words import ChainWords
from snakemake_executor_plugin_unbroken.chains import AWAY, HELD_SECONDS, LEAVING_SECONDS, Chains
from snakemake_executor_plugin_unbroken.interruptible import (
    refuse_mistakes,
    work_of,
)
from snakemake_executor_plugin_unbroken.plain_jobs import PlainJobs, refuse_log_folder
from snakemake_executor_plugin_unbroken.records import Records, is_near_end
from snakemake_executor_plugin_unbroken.segments import Out, Segment, out_of, pause_lines, segment_of
from snakemake_executor_plugin_unbroken.settled import is_done
from snakemake_executor_plugin_unbroken.slurm_plugin import (
    OTHER_CLUSTER,
    BatchStepExecutor,
    is_told_to_end,
    leave_own_job,
)
from snakemake_executor_plugin_unbroken.snakemake_jobs import give_up, leave_to_next_start, note_began
from snakemake_executor_plugin_unbroken.watch import ChainWatch, EndedChain
from unbroken.errors import FormatError, LeaseError, UnbrokenError
from unbroken.runs import driver_start
from unbroken.runs.layout import LOGS
from unbroken.runs.policy import Next, NextAction
from unbroken.segment.already_done import settle

# Each asks Slurm, which answers several at a time.
SUBMITTING_THREADS = 2


class Executor(BatchStepExecutor):
    """Runs the segments of each run as one job array, and takes their records as their ends."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        settings = workflow.executor_settings
        # Before the thread starts that looks after jobs.
        self._is_detached = bool(workflow.remote_execution_settings.immediate_submit)
        self._words = ChainWords(self)
        self._plain = PlainJobs(self)
        self._chains = Chains(self, self._words, settings.ahead)
        self._records = Records(settings.record_seconds)
        self._watch = ChainWatch(settings.init_seconds_before_status_checks, workflow.execution_settings.latency_wait)
        self._newest_done: dict[str, Segment] = {}
        self._has_told_end = False
        self._threads = ThreadPoolExecutor(SUBMITTING_THREADS, "unbroken-submit")
        super().__init__(workflow, logger)

    def __post_init__(self) -> None:
        leave_own_job()
        refuse_log_folder(self.workflow, LOGS)
        _refuse_other_clusters(self.workflow.rules)
        jobs = self._jobs_to_be_run()
        refuse_mistakes({job.rule.name: job.rule for job in jobs}.values())
        if any(work_of(job) is None and not job.is_local for job in jobs):
            self._plain.prepare()  # settings that cannot work are refused before anything is queued
        if not driver_start.current():  # a workflow of a user's own, in which nothing has named it
            driver_start.begin()

    # --- in Snakemake's main thread ---

    def run_jobs(self, jobs: list[Any]) -> None:
        """Hand segments to their chains, and all other jobs to the Slurm plugin."""
        plain = [job for job in jobs if work_of(job) is None]
        for job in jobs:
            if job not in plain:
                self.run_job_pre(job)
                self.hand_over(job)
        if plain:
            if self._is_detached:
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
            self._chains.run_job(job, segment)
        else:
            self._plain.run_job(job)

    def hand_over(self, job: Any) -> None:
        """Hand a segment to a thread that submits; without a driver, see to each before the next one is looked at."""
        if not self._is_detached:
            self._threads.submit(self.run_job, job).add_done_callback(self._raise_in_scheduler)
            return
        self.run_job(job)
        while (seconds := self._chains.seconds_to_next()) is not None:
            time.sleep(seconds)
            for postponed in self._chains.due():
                self.run_job(postponed)

    def _raise_in_scheduler(self, done: Future[None]) -> None:
        """Let an error of ours in a thread end the driver, which would wait for the job for ever."""
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self.workflow.scheduler.executor_error_callback(error)

    # --- what chains ask of us ---

    @property
    def is_detached(self) -> bool:
        """Return True if this driver only submits (--immediate-submit)."""
        return self._is_detached

    def latency_seconds(self) -> float:
        """Return how long a file may need until it is seen here."""
        return float(self.workflow.execution_settings.latency_wait)

    def _jobs_to_be_run(self) -> list[Any]:
        return list(self.workflow.dag.needrun_jobs())

    def jobs_of_run(self, run: str) -> list[Any]:
        """Return all jobs of a run that Snakemake is to run, in the order of their segments."""
        found = [(segment.number, job) for job in self._jobs_to_be_run() if (segment := segment_of(job)) is not None]
        own = [(number, job) for number, job in found if job.params.assignment.run.name == run]
        return [job for _, job in sorted(own, key=lambda pair: pair[0])]

    def submitted(self, info: SubmittedJobInfo) -> None:
        """A job of the chain does the segment."""
        self._watch.expect()
        self.report_job_submission(info)

    def succeeded(self, info: SubmittedJobInfo, began_unix: float | None) -> None:
        """The segment's record is there."""
        segment = segment_of(info.job)
        if segment is not None:
            self._watch.forget(segment)
            self._newest_done[segment.run.name] = segment
        if self._is_detached:
            self.goes_on_without(info.job)
        elif began_unix:
            note_began(info.job, began_unix)
        self.report_job_success(info)

    def failed(self, info: SubmittedJobInfo, line: str, is_final: bool, logs: Sequence[str] = ()) -> None:
        """The segment failed, in one line why."""
        if is_final:
            give_up(info.job)
        self.log(line)
        self.report_job_error(info, aux_logs=list(logs))

    def goes_on_without(self, job: Any) -> None:
        """With --immediate-submit: a job of the run does the segment when it has come so far.

        Snakemake goes on at a submission, whether there is a number of a job or not.
        """
        self.report_job_submission(SubmittedJobInfo(job), register_job=False)

    def log(self, line: str) -> None:
        """Print a line of ours among Snakemake's."""
        self.logger.info(f"unbroken: {line}")

    # --- in the thread that looks after jobs ---

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """End the jobs that are over, and yield the others."""
        if self._is_detached:
            self.next_seconds_between_status_checks = 0.2  # nothing is waited for
            return
        if is_told_to_end(self.workflow):
            active_jobs = self._without_segments(active_jobs)
        for job in self._chains.due():
            self.hand_over(job)
        self._chains.wake_scheduler()
        infos = {out: info for info in active_jobs if (out := out_of(info)) is not None}
        for info in self._check_segments(infos):
            yield info
        async for info in self._plain.check([info for info in active_jobs if out_of(info) is None]):
            yield info
        self.next_seconds_between_status_checks = self._records.interval_seconds

    def _check_segments(self, infos: dict[Out, SubmittedJobInfo]) -> Iterable[SubmittedJobInfo]:
        arrived = self._records.arrived(self._records.due(infos), is_near_end(infos))
        self._restore_vanished()
        waiting = [out for out in infos if out.segment not in arrived]
        for out in infos:
            if out.segment in arrived:
                for line in pause_lines(out):
                    self.log(line)
                self._chains.succeed(infos[out], out.segment)
        ended = self._watch.look(waiting, self.log)
        for out in waiting:
            end = ended.get(out)
            if end is None or time.monotonic() < out.not_before or not self._close(infos[out], out, end):
                yield infos[out]

    def _restore_vanished(self) -> None:
        """Make a record again that was removed with its job; else the next driver does."""
        for segment in self._records.vanished(self._newest_done.values()):
            del self._newest_done[segment.run.name]
            try:
                if settle(segment.run, segment.number, self.log) is not None:
                    self.log(f"{segment.name}: its job was ended in its last moment, its record is made again")
            except (UnbrokenError, OSError):
                continue

    def _close(self, info: SubmittedJobInfo, out: Out, end: EndedChain) -> bool:
        """Act when no job of the run is left and there is no record; return False if it is too early to say."""
        segment = out.segment
        for line in pause_lines(out):
            self.log(line)
        try:
            if segment.has_record() or is_done(segment, self.log):
                self._chains.succeed(info, segment)
                return True
        except LeaseError:
            out.not_before = time.monotonic() + HELD_SECONDS
            if time.monotonic() - end.since < LEAVING_SECONDS:
                return False
        except AWAY as error:
            return self._look_again(out, error)
        except UnbrokenError as error:
            self._chains.fail(info, segment, str(error), is_final=True)
            return True
        try:
            action = self._watch.outcome(out, end, self._chains.spec_of(segment), self.log)
        except AWAY as error:
            return self._look_again(out, error)
        except FormatError as error:  # a newer unbroken was installed, and its job has written the history
            action = NextAction(Next.STOP, str(error))
        self._watch.forget_end(out)
        self._follow(info, segment, action)
        return True

    def _look_again(self, out: Out, error: Exception) -> bool:
        if str(error) != out.told_away:
            self.log(f"{out.segment.name}: {error}; tried again every {HELD_SECONDS:g} s")
        out.told_away = str(error)
        out.not_before = time.monotonic() + HELD_SECONDS
        return False

    def _follow(self, info: SubmittedJobInfo, segment: Segment, action: NextAction) -> None:
        is_retry = action.kind is Next.RETRY
        if action.kind is Next.STOP or (is_retry and self._chains.is_retried_by_snakemake(segment)):
            if not is_retry:
                self._watch.forget(segment)
            self._chains.fail(info, segment, action.why, is_final=not is_retry)
            return
        if action.kind is Next.WAIT:
            self._chains.held(segment)
        self._chains.resume(info, segment, action.why)

    # --- the end ---

    def _without_segments(self, infos: list[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
        """Leave all jobs of chains in the queue, where the next start finds them: they need no driver."""
        if not self._has_told_end:
            self._has_told_end = True
            self.log("told to end (SIGTERM): the jobs of all runs stay in the queue and go on; next: snakemake")
        for job in self._chains.postponed():
            leave_to_next_start(self.workflow, job)
        for info in infos:
            if (out := out_of(info)) is not None:
                self._chains.forget(out.segment)
                leave_to_next_start(self.workflow, info.job)
        return [info for info in infos if out_of(info) is None]

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel all jobs of the runs, also those that the other thread is just looking at, and all plain jobs."""
        self._chains.cancel(active_jobs)
        self._plain.cancel([info for info in active_jobs if out_of(info) is None])

    def shutdown(self) -> None:
        """Let submissions end, and what looks after jobs; then print what is left to say."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        super().shutdown()
        self._plain.shutdown()
        if self._is_detached:
            self._chains.wake_scheduler(waits=True)
            self.log(self._chains.summary())


def _refuse_other_clusters(rules: Iterable[Any]) -> None:
    """WorkflowError if segments would go elsewhere: squeue and scancel would ask here, and find none."""
    for rule in rules:
        if "assignment" in dict(rule.params.items()) and (asked := set(OTHER_CLUSTER) & set(rule.resources)):
            found = f"unbroken: resources: found {', '.join(sorted(asked))}, allowed: none of these"
            raise WorkflowError(f"{found}; start snakemake on a login node of that cluster")
