"""The chain of one run as a driver sees it: tasks of its job array are in the queue until the record is there.

What follows the end of a job is decided by the jobs of the run.  Where none is left and there is no record, the driver
asks what a job would ask, and submits the next array or ends the run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken.chain_specs import ChainHost, spec_of
from snakemake_executor_plugin_unbroken.queue_watch import QueueWatch
from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.errors import LeaseError, OutageError, UnbrokenError
from unbroken.job import array
from unbroken.job.array import Answer, Submitted
from unbroken.job.control import OtherOwner, ensure
from unbroken.job.left_out import SUBMITTED_LATER, leave_out
from unbroken.job.next_attempt import after_last_job, last_job
from unbroken.job.policy import Next, NextAction
from unbroken.job.rule_state import RulePauses
from unbroken.job.spec import JobSpec
from unbroken.job.submissions import Submission
from unbroken.slurm.job import EndState, ListedJob
from unbroken.store import driver_start
from unbroken.store.lease import HEARTBEAT_SECONDS
from unbroken.system import fs

NEVER = float("inf")
# How often a file server is tried that is away for a moment.
AWAY_SECONDS = 10.0
# A job that is ending leaves the run within seconds; one whose machine is lost seems alive for longer.
LEAVING_SECONDS = 150.0
# When what was not submitted now is tried again: a controller that is away, a limit on jobs in the queue, ...
BUSY_SECONDS = 15.0
SOON_SECONDS = {
    Answer.SOON: 1.0,
    Answer.DONE: 1.0,  # no task was needed: a record has appeared meanwhile
    Answer.LEAVING: 3.0,
    Answer.HELD: HEARTBEAT_SECONDS,
}
# An end is asked for twice, because Slurm may be about to queue the job again; more often if Slurm knows no job.
LOOKS = 2
LOST_LOOKS = 4


class Chain:
    """A run whose segments Snakemake asks for, one after the other."""

    def __init__(self, segment: Segment, host: ChainHost, queue: QueueWatch) -> None:
        self.key, self._host, self._queue = segment.key, host, queue
        self.active: dict[Segment, SubmittedJobInfo] = {}  # Snakemake's jobs that wait for their records
        self.found: Submitted | None = None  # its jobs in the queue, found there or submitted by this driver
        self.due = NEVER  # when to look at it again, by time.monotonic()
        self._spec: JobSpec | None = None
        self._end: ListedJob | None = None  # its last job, if none is left
        self._looks = 0  # in a row in which no job was left
        self._is_first = True  # what squeue has said to another run a moment ago counts
        self._is_seen_to = False
        self._held_since: float | None = None
        self._others = OtherOwner()
        self._pauses = RulePauses(segment.key, segment.allowed) if segment.is_rule else None
        self._last_line = ""

    def add(self, info: SubmittedJobInfo, segment: Segment) -> None:
        """Take over a job of Snakemake's."""
        self.active[segment] = info
        self._is_first = True
        self.see_to(segment)

    def see_to(self, segment: Segment) -> None:
        """Report the segment as done, or ensure that a job does it; else set `due` to when to call this again."""
        self.due, self._is_seen_to = NEVER, True
        try:
            with fs.storage_errors(segment.folder.root):  # what a user has to fix is not waited for
                self.due = time.monotonic() + self._seconds_to_next(segment)
        except (OSError, UnbrokenError) as error:
            if isinstance(error, OSError | OutageError) and not self._host.is_detached:
                self._log_once(f"{segment.name}: {error}; tried again every {AWAY_SECONDS:g} s")
                self.due = time.monotonic() + AWAY_SECONDS
            else:  # without a driver no process looks later, and the user reads why
                self._fail(segment, str(error), is_final=True)
        finally:
            self._is_seen_to = False

    def succeed(self, segment: Segment) -> None:
        """Report that the record of the segment is there."""
        if (info := self.active.pop(segment, None)) is not None:
            self._last_line, self._end, self._looks = "", None, 0
            self._host.succeeded(info, segment)

    # --- what `see_to` does ---

    def _seconds_to_next(self, segment: Segment) -> float:
        """Do what `see_to` does; return after how many seconds to call it again."""
        try:
            if (self._end and segment.has_record()) or segment.is_done():
                if self.found is None:  # else a task ran ahead of Snakemake
                    self._host.log(f"{segment.name}: its work is done, no job needed", is_routine=True)
                self.succeed(segment)
                return NEVER
        except LeaseError:  # a job that has not left yet keeps the record from being made again
            self._held_since = self._held_since or time.monotonic()
            if (waited := time.monotonic() - self._held_since) < LEAVING_SECONDS:
                return min(1.0 + waited, AWAY_SECONDS)
        self._held_since = None
        if self._end is None or self._resumes(segment, self._end):
            return self._ensure(segment)
        return NEVER

    def _resumes(self, segment: Segment, last: ListedJob) -> bool:
        """Return True if further tasks are to do the segment, although no job of the run is left."""
        spec = self._spec or self._spec_for(segment)
        action = after_last_job(spec, segment.number_at_work(), last)
        self._end, self._looks = None, 0
        self._others.was_met = action.kind is Next.WAIT
        line = f"{segment.name}: {_what_follows(last, action)}"
        # Snakemake counts the retries of single jobs, and of a rule's job in which no run began.
        is_counted = not (spec.submission.refills and spec.has_begun)
        if action.stops or (is_counted and action.kind in (Next.RETRY, Next.MORE_MEMORY)):
            self._fail(segment, line, is_final=action.stops)
            return False
        self._host.log(line)
        return True

    def _ensure(self, segment: Segment) -> float:
        is_start, spec = self.found is None, self._spec_for(segment)
        is_first, self._is_first = self._is_first, False

        def ask(newest: Submission | None) -> list[ListedJob] | None:
            # Without the note on its array (`rm -rf .snakemake`) an answer may be older than that.
            is_lost = newest is None and self.found is not None
            return self._queue.jobs(newest, is_fresh=is_lost or not is_first)

        done = ensure(spec, segment.number, ask, self._others.find, is_start=is_start)
        if done.answer is Answer.HELD and self._host.is_detached:  # no driver waits here: its tasks find out
            done = array.submit(spec)
        if done.answer is Answer.REFUSED:
            line = f"{segment.name}: Slurm refuses the job ({done.said}); fix the config, then start snakemake again"
            self._fail(segment, line, is_final=True)
            return NEVER
        if done.answer is Answer.FULL and self._host.is_detached:
            leave_out(self.key)
            self._host.log(f"{segment.chain_name}: {done.line}; {SUBMITTED_LATER}")
        elif not done.job_id or done.answer is Answer.LEAVING:
            if done.answer not in (Answer.SOON, Answer.DONE):
                self._log_once(f"{segment.name}: {done.line}; tried again")
            return SOON_SECONDS.get(done.answer, BUSY_SECONDS)
        elif is_start or done.answer is not Answer.FOUND:
            self._host.log(f"{segment.name if done.answer is Answer.FOUND else segment.chain_name}: {done.line}")
        self.found = done
        self._queue.expect()
        return NEVER

    def _spec_for(self, segment: Segment) -> JobSpec:
        """Return the run's spec, written once for each start; for single jobs once for each of them."""
        if self._spec is None or not self._spec.submission.refills:
            spec, why = spec_of(self._host, self.active[segment].job, segment)
            if self._spec is None and not spec.is_rule:
                driver_start.note_if_there(segment.folder)
            if self._spec is None and why:
                self._host.log(f"{self.key}: single jobs instead of one array: {why}")
            spec.write()
            self._spec = spec
        return self._spec

    def _fail(self, segment: Segment, line: str, *, is_final: bool) -> None:
        """Let the segment fail; no further attempt is made if it `is_final`.

        Not if a task has left the record in this moment: Snakemake removes the output of a job that failed.
        """
        if self._spec is not None and segment.has_record():
            return self.succeed(segment)
        if (info := self.active.pop(segment, None)) is not None:
            self._last_line = ""
            logs = array.newest_log(Path(self._spec.submission.logs)) if self._spec else []
            self._host.failed(info, line, is_final=is_final, logs=logs)

    def _log_once(self, line: str) -> None:
        if self._last_line != line:
            self._last_line = line
            self._host.log(line)

    # --- signs of its jobs ---

    def log_pauses(self) -> None:
        """Log the pauses of a user's rule, which Snakemake does not know."""
        for line in self._pauses.new_lines() if self._pauses else []:
            self._host.log(line)

    def take_answer(self, segment: Segment, jobs: Sequence[ListedJob]) -> bool:
        """Note whether a job of the run is left; `jobs` are those that squeue shows of it, also ended ones.

        Return True if squeue is to be asked again soon: no job is left, as it seems.
        """
        alive = array.alive_of(jobs, self.key)
        if alive:
            self._looks, self._end = 0, None
            if alive[0].is_stuck and all(job.is_waiting for job in alive):
                self._log_once(f"{segment.name}: {alive[0].describe()}")  # all its tasks wait for the same
            return False
        self._looks += 1
        last = last_job(self.key, jobs)
        if self._looks < (LOST_LOOKS if last.state == EndState.UNKNOWN else LOOKS):
            return True
        self._end, self._looks = last, 0
        # A record may need a while to be seen here.
        self.due = time.monotonic() + (self._host.latency_seconds if last.state == "COMPLETED" else 0.0)
        return False

    @property
    def is_watched(self) -> bool:
        """Return True if its jobs are in the queue, as far as is known."""
        return self.found is not None and self.due == NEVER and not self._is_seen_to


def _what_follows(last: ListedJob, action: NextAction) -> str:
    start = f"job {last.job_id} ended as {last.state}"
    if action.stops:
        return f"{start}; this run stops: {action.why}"
    if last.state == "COMPLETING":  # it hangs
        hangs = f"job {last.job_id} has been COMPLETING for minutes (its node or its epilog hangs)"
        return f"{hangs}; the same segment goes on without it"
    if action.kind is Next.WAIT:
        return f"{start}: {action.why}; the same segment goes on after it"
    if action.kind is Next.RESUME:
        return f"{start}, no failure; the same segment goes on from the newest checkpoint"
    return f"{start}: {action.why}"
