"""The executor: segments are chains (`chains`), everything else is handed to snakemake-executor-plugin-slurm.

Snakemake's main thread hands jobs over, a few threads submit them, and one thread looks after those that are out
(`check_active_jobs`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken.chains import AWAY, HELD_SECONDS, LEAVING_SECONDS, Chains, Settings
from snakemake_executor_plugin_unbroken.interruptible import (
    Interruptible,
    early_signal,
    interruptible_of,
    refuse_mistakes,
    work_of,
)
from snakemake_executor_plugin_unbroken.job_outcome import Follows, JobOutcome
from snakemake_executor_plugin_unbroken.parent import (
    OTHER_CLUSTER,
    SlurmParent,
    chain_command,
    chain_words,
    is_immediate,
    note_began,
    snakemake_words,
    with_our_commands,
)
from snakemake_executor_plugin_unbroken.records import Records, is_near_end
from snakemake_executor_plugin_unbroken.segments import Out, Segment, out_of, segment_of
from snakemake_executor_plugin_unbroken.settled import is_done
from snakemake_executor_plugin_unbroken.watch import ChainWatch, EndedChain
from unbroken.errors import FormatError, LeaseError, UnbrokenError
from unbroken.runs import driver_start
from unbroken.runs.run import Run
from unbroken.segment.already_done import settle
from unbroken.slurm import time_min

# More inputs make too long a command line; the parent then writes them into a file in a folder of the driver's.
MOST_INPUTS = 20


class Executor(SlurmParent):
    """Runs the segments of each run as one job array, and takes their records as their ends."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        settings = workflow.executor_settings
        # Before the parent starts the thread that looks after jobs.
        self._is_detached = is_immediate(workflow)
        of_chains = Settings(settings.ahead, bool(settings.keep_successful_logs), self._is_detached)
        self._chains = Chains(self, of_chains, self._hand_over)
        self._records = Records(settings.record_seconds)
        self._watch = ChainWatch(settings.init_seconds_before_status_checks, workflow.execution_settings.latency_wait)
        self._newest_done: dict[str, Segment] = {}
        self._has_told_end = False
        self._others_seconds = 0.0
        self._others_due = 0.0
        super().__init__(workflow, logger)

    def __post_init__(self, test_mode: bool = False) -> None:
        super().__post_init__(test_mode)
        _refuse_other_clusters(self.workflow.rules)
        refuse_mistakes(self.rules_to_be_run())
        if not driver_start.current():  # a workflow of a user's own, in which nothing has named it
            driver_start.begin()

    # --- where jobs are submitted: in the plugin's threads; with --immediate-submit in Snakemake's main thread ---

    def is_complete(self, job: Any) -> bool:
        """Return True for a segment, which the chain of its run takes."""
        segment = work_of(job)
        if segment is not None:
            self._chains.run_job(job, segment)
        return segment is not None

    def _submit_job(self, job: Any) -> None:
        self.run_job_pre(job)
        self._hand_over(job)

    def _hand_over(self, job: Any) -> None:
        """Hand a job to a thread that submits; without a driver, see to each before the next one is looked at."""
        if not self._is_detached:
            self.submit_soon(job)
            return
        self.run_job(job)
        while (seconds := self._chains.seconds_to_next()) is not None:
            time.sleep(seconds)
            for postponed in self._chains.due():
                self.run_job(postponed)

    # --- what chains ask of us ---

    def chain_words(self, job: Any) -> list[str]:
        """Return the words for sbatch of a segment's job, the same for all of its run."""
        segment = work_of(job)
        if segment is None:
            return []
        if isinstance(segment, Interruptible):
            warning = early_signal(job.resources.get("runtime"))
            return [f"--job-name={job.rule.name}-segments", *warning, *chain_words(self.sbatch_words(job))]
        words = time_min.words(segment.run.least_minutes) if self.takes_less_time(segment.run) else []
        return [f"--job-name={segment.run.name}-segments", *chain_words(self.sbatch_words(job)), *words]

    def takes_less_time(self, run: Run) -> bool:
        """Return True if jobs of the run may start with less time than a segment."""
        return run.least_minutes is not None and self._gives_all_time

    @cached_property
    def _gives_all_time(self) -> bool:
        return time_min.gives_all_time()

    def files_to_wait_for(self, job: Any) -> list[str] | None:
        """Return none for a segment's job, whose number is known only when it starts; None for the parent's.

        A job of a user's own rule may wait in the queue for longer than its driver lives.
        """
        if interruptible_of(job) is not None:
            inputs = self.inputs_to_wait_for(job)
            return inputs if len(inputs) <= MOST_INPUTS else None
        return None if segment_of(job) is None else []

    def chain_batch(self, job: Any, spec_path: Path) -> tuple[str, tuple[str, ...]]:
        """Return what a job of the chain runs, and the command by which Snakemake would run the rule's job in it."""
        command = self.command_alone(job)
        is_rule = interruptible_of(job) is not None
        if is_rule:
            command = with_our_commands(command)
        return chain_command(command, spec_path), snakemake_words(command, keeps_incomplete=not is_rule)

    def jobs_of_run(self, run: str) -> list[Any]:
        """Return all jobs of a run that Snakemake is to run, in the order of their segments."""
        found = [(segment.number, job) for job in self.jobs_to_be_run() if (segment := segment_of(job)) is not None]
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
            self.go_on_after(info.job)
        elif began_unix:
            note_began(info.job, began_unix)
        self.report_job_success(info)

    def failed(self, info: SubmittedJobInfo, line: str, is_final: bool, logs: Sequence[str] = ()) -> None:
        """The segment failed, in one line why."""
        if is_final:
            self.give_up(info.job)
        self.log(line)
        self.report_job_error(info, aux_logs=list(logs))

    def goes_on_without(self, job: Any) -> None:
        """With --immediate-submit: a job of the run does the segment when it has come so far."""
        self.go_on_after(job)

    def log(self, line: str) -> None:
        """Print a line of ours among Snakemake's."""
        self.logger.info(f"unbroken: {line}")

    # --- in the thread that looks after jobs ---

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """End the jobs that are over, and yield the others."""
        if self._is_detached:
            self.next_seconds_between_status_checks = 0.2  # nothing is waited for
            return
        if self.is_told_to_end():
            active_jobs = self._without_segments(active_jobs)
        for job in self._chains.due():
            self._hand_over(job)
        infos = {out: info for info in active_jobs if (out := out_of(info)) is not None}
        for info in self._check_segments(infos):
            yield info
        async for info in self._check_others([info for info in active_jobs if out_of(info) is None]):
            yield info
        self.next_seconds_between_status_checks = self._records.interval_seconds

    def _check_segments(self, infos: dict[Out, SubmittedJobInfo]) -> Iterable[SubmittedJobInfo]:
        arrived = self._records.arrived(self._records.due(infos), is_near_end(infos))
        self._restore_vanished()
        waiting = [out for out in infos if out.segment not in arrived]
        for out in infos:
            if out.segment in arrived:
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
            outcome = self._watch.outcome(out, end, self._chains.spec_of(segment), self.log)
        except AWAY as error:
            return self._look_again(out, error)
        except FormatError as error:  # a newer unbroken was installed, and its job has written the history
            outcome = JobOutcome(Follows.STOP, str(error))
        self._watch.forget_end(out)
        self._follow(info, segment, outcome)
        return True

    def _look_again(self, out: Out, error: Exception) -> bool:
        if str(error) != out.told_away:
            self.log(f"{out.segment.name}: {error}; tried again every {HELD_SECONDS:g} s")
        out.told_away = str(error)
        out.not_before = time.monotonic() + HELD_SECONDS
        return False

    def _follow(self, info: SubmittedJobInfo, segment: Segment, outcome: JobOutcome) -> None:
        is_retry = outcome.follows is Follows.RETRY
        if outcome.follows is Follows.STOP or (is_retry and self._chains.is_retried_by_snakemake(segment)):
            if not is_retry:
                self._watch.forget(segment)
            self._chains.fail(info, segment, outcome.line, is_final=not is_retry)
            return
        if outcome.follows is Follows.AFTER:
            self._chains.held(segment)
        self._chains.resume(info, segment, outcome.line)

    async def _check_others(self, infos: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Ask about jobs of other rules as the parent does, at its own pace."""
        if not infos or time.monotonic() < self._others_due:
            for info in infos:
                yield info
            return
        self.next_seconds_between_status_checks = self._others_seconds or self._watch.first_seconds
        async for info in super().check_active_jobs(infos):
            yield info
        self._others_seconds = self.next_seconds_between_status_checks
        self._others_due = time.monotonic() + self._others_seconds

    # --- the end ---

    def _without_segments(self, infos: list[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
        """Leave all jobs of chains in the queue, where the next start finds them: they need no driver."""
        if not self._has_told_end:
            self._has_told_end = True
            self.log("told to end (SIGTERM): the jobs of all runs stay in the queue and go on; next: snakemake")
        for job in self._chains.postponed():
            self.leave_to_next_start(job)
        for info in infos:
            if (out := out_of(info)) is not None:
                self._chains.forget(out.segment)
                self.leave_to_next_start(info.job)
        return [info for info in infos if out_of(info) is None]

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel all jobs of the runs, also those that the other thread is just looking at."""
        self._chains.cancel(active_jobs)
        super().cancel_jobs([info for info in active_jobs if out_of(info) is None])

    def shutdown(self) -> None:
        """End as the parent does; then print what is left to say."""
        super().shutdown()
        if self._is_detached:
            self.log(self._chains.summary())


def _refuse_other_clusters(rules: Iterable[Any]) -> None:
    """WorkflowError if segments would go elsewhere: squeue and scancel would ask here, and find none."""
    for rule in rules:
        if "assignment" in dict(rule.params.items()) and (asked := OTHER_CLUSTER & set(rule.resources)):
            found = f"unbroken: resources: found {', '.join(sorted(asked))}, allowed: none of these"
            raise WorkflowError(f"{found}; start snakemake on a login node of that cluster")
