"""Submission: each of Snakemake's jobs goes to the parent, unless its segment is done already or out already."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken import interruptible, still_needed
from snakemake_executor_plugin_unbroken.adoption import LEAVING_SECONDS, Adoption
from snakemake_executor_plugin_unbroken.detached import Detached
from snakemake_executor_plugin_unbroken.interruptible import Interruptible, work_of
from snakemake_executor_plugin_unbroken.job_commands import JobCommands
from snakemake_executor_plugin_unbroken.others import Others
from snakemake_executor_plugin_unbroken.parent import (
    OTHER_CLUSTER,
    note_began,
)
from snakemake_executor_plugin_unbroken.records import Records
from snakemake_executor_plugin_unbroken.retry_later import Later
from snakemake_executor_plugin_unbroken.segments import Out, Segment, keep_out
from snakemake_executor_plugin_unbroken.ticket_jobs import began_unix, ticket_of
from snakemake_executor_plugin_unbroken.watch import JobWatch
from unbroken.detached import resubmit, targets
from unbroken.detached.pending_jobs import DETACHED_JOB_NAME
from unbroken.errors import LeaseError, OutageError, UnbrokenError
from unbroken.runs import begun, driver_start, submissions
from unbroken.runs.layout import RunFolder
from unbroken.runs.submissions import Submission
from unbroken.slurm.queue import my_jobs
from unbroken.slurm.refusals import is_no_array, is_queue_full, is_transient, refusal
from unbroken.system import fs

# Between two looks at a run that cannot be looked at: its job is not out of it yet, or the file server is away.
HELD_SECONDS = 10.0
# The file server, for a moment.
AWAY = (OSError, OutageError)
# A controller that is away, or a limit on jobs in the queue.
TRANSIENT_SECONDS = 15.0
ALONE = (
    "only one may be there (MaxSubmitJobs), so when it is over start snakemake again, or use a driver: --profile slurm"
)


class Submitting(JobCommands):
    """The parent with segments in mind, as far as submission goes; it knows of a job's end what `_succeed` is told."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        settings = workflow.executor_settings
        # Before the parent starts the thread that looks after jobs.
        self._out: dict[str, SubmittedJobInfo] = {}
        self._out_lock = threading.Lock()
        self._later = Later()
        self._leaving: dict[Segment, float] = {}
        self._told_away: dict[Segment, str] = {}
        self._noted: set[str] = set()
        self._known: set[str] = set()
        self._newest_done: dict[str, Segment] = {}
        self._paused: dict[Path, int] = {}  # of the runs of interruptible jobs, how many pauses were known so far
        self._records = Records(settings.record_seconds)
        times = settings.init_seconds_before_status_checks, workflow.execution_settings.latency_wait
        self._watch, self._interruptible_watch = JobWatch(*times), JobWatch(*times)
        self._adoption = Adoption(Path(workflow.workdir_init))
        self._others = Others()
        self._others_seconds = 0.0
        self._others_due = 0.0
        self._pending_due = 0.0
        super().__init__(workflow, logger)

    def __post_init__(self, test_mode: bool = False) -> None:
        super().__post_init__(test_mode)
        if self._detached is not None:
            self.name_jobs(DETACHED_JOB_NAME)
        _refuse_other_clusters(self.workflow.rules)
        interruptible.refuse_mistakes(self.rules_to_be_run(), has_driver=self._detached is None)
        if not driver_start.current():  # a workflow of somebody else's, in which nobody has named it
            driver_start.begin()

    # --- in the parent's threads; with --immediate-submit in Snakemake's main thread ---

    def is_complete(self, job: Any) -> bool:
        """True for a segment, or an interruptible job, which is looked at before it is submitted, if at all."""
        segment = work_of(job)
        if segment is None:
            return False
        try:
            with fs.storage_errors(segment.places.root):  # what somebody has to mend is not waited for
                self._look_before_submission(job, segment)
            self._told_away.pop(segment, None)
        except AWAY as error:
            self._look_later(job, segment, error)
        except UnbrokenError as error:
            self.report_job_error(SubmittedJobInfo(job), msg=f"{error}. ")
        return True

    def _look_before_submission(self, job: Any, segment: Segment) -> None:
        if isinstance(segment, Interruptible):
            self._submit_or_adopt(job, segment)
            return
        self._note_what_is_wanted(job, segment)
        self._run_segment(job, segment)

    def _look_later(self, job: Any, segment: Segment, error: Exception) -> None:
        """Costs no retry; without a driver nobody looks later, and whoever typed the command is told."""
        if self._detached is not None:
            self.report_job_error(SubmittedJobInfo(job), msg=f"{error}. ")
            return
        self._told_away[segment] = self._tell_away(segment, error, self._told_away.get(segment, ""))
        self._later.add(HELD_SECONDS, job)

    def _tell_away(self, segment: Segment, error: Exception, told: str) -> str:
        """What was told, which is told once, however long that lasts."""
        if str(error) != told:
            self._tell(f"{segment.name}: {error}; retried every {HELD_SECONDS:g} s")
        return str(error)

    def _note_what_is_wanted(self, job: Any, segment: Segment) -> None:
        """Jobs that are out are told of what was changed since: the settings, and if their run was extended."""
        run = segment.run
        if run.name not in self._known:
            self._known.add(run.name)
            begun.note_if_there(RunFolder(run.name))
            if (ticket := ticket_of(job, segment, self.latency_seconds())) is not None:
                ticket.write()
            if self._detached is not None:
                template = self.template(job, segment, self._detached) if ticket is not None else None
                self._detached.keep(segment, template)
        if run.name not in self._noted and (self._detached is not None or targets.wanted(run.name) is not None):
            targets.keep(run)
            self._noted.add(run.name)

    def _submit_job(self, job: Any) -> None:
        self.run_job_pre(job)
        self._hand_over(job)

    def _hand_over(self, job: Any) -> None:
        """To a thread that submits; without a driver each job is in the queue before the next one is looked at."""
        if self._detached is None:
            self.submit_soon(job)
            return
        self.run_job(job)
        while (seconds := self._later.seconds_to_next()) is not None:
            time.sleep(seconds)
            for postponed in self._later.due():
                self.run_job(postponed)

    def _run_segment(self, job: Any, segment: Segment) -> None:
        try:
            if still_needed.is_done(segment, self._tell):
                self._tell(f"{segment.name}: its work is done, no job needed")
                self._succeed(SubmittedJobInfo(job), segment)
                return
        except LeaseError:
            # Each attempt may ask Slurm who holds the run, so they become fewer.
            waited = time.monotonic() - self._leaving.setdefault(segment, time.monotonic())
            if waited < LEAVING_SECONDS:
                self._later.add(1.0 + waited, job)
                return
        self._leaving.pop(segment, None)
        self._submit_or_adopt(job, segment)

    def _submit_or_adopt(self, job: Any, segment: Segment) -> None:
        with self._out_lock:
            taken = {info.external_jobid for info in self._out.values()}
        found = self._adoption.find(segment, self.numbers_kept_for(job), taken)
        if found.must_wait:
            if found.line:
                self._tell(found.line)
            self._later.add(found.wait_seconds, job)
        elif found.job_id:
            if self._detached is not None and not found.submits_the_next:
                self._detached.found_driven(found.job_id)
            self._tell(f"{segment.name}: job {found.job_id} is in the queue or running already, taken over")
            self.report_job_submission(self.adopted(job, found.job_id))
        elif self._detached is not None and (task := self._detached.task(segment)):
            submissions.take(segment.key, found.ticket)
            self.report_job_submission(self.adopted(job, task))
        elif self._detached is not None and not self._detached.has_room(segment):
            self.go_on_after(job)  # a job of this run submits it
        elif self._waits_for_others(job, segment, found.ticket):
            pass
        elif self._take(segment, found.ticket):
            self._submit(job, segment)
        else:
            self._later.add(1.0, job)  # another driver was quicker, in this moment

    def _take(self, segment: Segment, after: Submission | None) -> bool:
        if isinstance(segment, Interruptible):
            return submissions.take(segment.key, after)
        return still_needed.take(segment, after, self._tell)

    def _waits_for_others(self, job: Any, segment: Segment, ticket: Submission | None) -> bool:
        """True if the segment is retried later; without a driver its job waits in the queue instead."""
        other = self._others.look(segment, ticket)
        if other is None:
            return False
        if other.line:
            self._tell(other.line)
        if self._detached is not None:
            self._detached.wait_for(segment, other.job_id)
            return False
        self._later.add(other.wait_seconds, job)
        return True

    def _submit(self, job: Any, segment: Segment) -> None:
        if self._detached is not None:
            self._detached.now = segment
        self.submit_now(job)

    def report_job_submission(self, job_info: SubmittedJobInfo, register_job: bool = True) -> None:
        """The job is out."""
        segment = work_of(job_info.job)
        if segment is not None and job_info.external_jobid:
            job_info = self._as_task(job_info, segment)
            submissions.fill(segment.key, job_info.external_jobid)
            is_segment = not isinstance(segment, Interruptible)
            keep_out(job_info, Out(segment, job_info.external_jobid, leaves_record=is_segment))
            (self._watch if is_segment else self._interruptible_watch).expect()
            if self._detached is not None:
                self._detached.add(segment, job_info.external_jobid)
            with self._out_lock:
                self._out[job_info.external_jobid] = job_info
        super().report_job_submission(job_info, register_job=register_job)

    def _as_task(self, info: SubmittedJobInfo, segment: Segment | Interruptible) -> SubmittedJobInfo:
        """Of an array that has just been submitted its first task."""
        if isinstance(segment, Interruptible) or self._detached is None or self._detached.now != segment:
            return info
        if (size := self.array_size(segment)) == 1:
            return info
        return self.adopted(info.job, self._detached.split(segment, str(info.external_jobid), size))

    def is_taken_care_of(self, job: Any, said: str) -> bool:
        """True if the segment's job is to be submitted later, by us or by a job of its run."""
        segment = work_of(job)
        if segment is not None:
            submissions.drop(segment.key)
            if self._detached is not None and (is_queue_full(said) or is_no_array(said)):
                self._leave_out(job, segment, self._detached)
                return True
            if is_transient(said):
                self._tell(f"{segment.name}: Slurm does not take the job now; tried again ({_last_line(said)})")
                self._adoption.forget()  # sbatch may have been heard although its answer was lost
                self._later.add(TRANSIENT_SECONDS, job)
                return True
        if words := refusal(said):
            self.give_up(job)
            name = segment.name if segment else job.name
            self._tell(f"{name}: Slurm refuses the job ({words}); fix the config, then start snakemake again")
        return False

    def _leave_out(self, job: Any, segment: Segment, detached: Detached) -> None:
        """The site takes no more jobs now; those that are out submit the rest.

        Where it takes no array there may be room for some of its jobs.
        """
        if self.array_size(segment) > 1:
            detached.make_no_array(segment)
            self._later.add(0.0, job)
            return
        follows = "a job that is out submits it later"
        if detached.is_empty(segment):
            resubmit.leave_out(segment.run.name)
            follows = ALONE if self._is_alone(detached) else follows
        self._tell(f"{segment.name}: the queue takes no more jobs now; {follows}")
        detached.set_full(segment)
        self.go_on_after(job)

    def _is_alone(self, detached: Detached) -> bool:
        """True if the site lets this user have one job only: it goes on with its run, and can submit no other one."""
        return detached.count == 1 and len([job for job in my_jobs() or [] if job.is_alive]) == 1

    def _succeed(self, info: SubmittedJobInfo, segment: Segment) -> None:
        self._forget(info)
        self._watch.forget(segment)
        self._newest_done[segment.run.name] = segment
        submissions.drop(segment.key)
        self.needs_no_log(info)
        if self._detached is not None:
            self.go_on_after(info.job)
        elif began := began_unix(segment, info.external_jobid):
            note_began(info.job, began)
        self.report_job_success(info)

    def _forget(self, info: SubmittedJobInfo) -> None:
        if info.external_jobid:
            self._adoption.mark_ended(info.external_jobid)
            with self._out_lock:
                self._out.pop(info.external_jobid, None)

    def _tell(self, line: str) -> None:
        self.logger.info(f"unbroken: {line}")


def _refuse_other_clusters(rules: Iterable[Any]) -> None:
    """WorkflowError if segments would go elsewhere: squeue and scancel would ask here, and find none."""
    for rule in rules:
        if "assignment" in dict(rule.params.items()) and (asked := OTHER_CLUSTER & set(rule.resources)):
            found = f"unbroken: resources: found {', '.join(sorted(asked))}, allowed: none of these"
            raise WorkflowError(f"{found}; start snakemake on a login node of that cluster")


def _last_line(text: str) -> str:
    """sbatch's own words in the parent's message."""
    said = [line.strip() for line in text.splitlines() if "rror" in line]
    return said[0] if said else text.strip().splitlines()[0]
