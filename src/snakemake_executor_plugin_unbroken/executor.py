"""The executor: the parent submits, cancels and keeps Slurm's logs; when a segment is over is decided here.

Snakemake's main thread hands jobs over, two threads of the parent submit them (`submitting`), and one thread looks
after those that are out (`check_active_jobs`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from dataclasses import replace

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken import still_needed
from snakemake_executor_plugin_unbroken.adoption import LEAVING_SECONDS
from snakemake_executor_plugin_unbroken.interruptible import (
    Interruptible,
    judged,
    newest_notes,
    of_note,
    paused_by,
)
from snakemake_executor_plugin_unbroken.job_outcome import Follows, JobOutcome
from snakemake_executor_plugin_unbroken.records import is_near_end, is_record_of
from snakemake_executor_plugin_unbroken.segments import Out, Segment, out_of
from snakemake_executor_plugin_unbroken.submitting import AWAY, HELD_SECONDS, Submitting
from snakemake_executor_plugin_unbroken.watch import EndedJobOfSegment
from unbroken.errors import FormatError, LeaseError, UnbrokenError
from unbroken.runs import submissions
from unbroken.runs.exec_note import STARTED
from unbroken.runs.outcome import Outcome
from unbroken.segment.already_done import settle
from unbroken.slurm.queue import my_jobs

# Between two questions which jobs have not begun, once the driver is told to end.
PENDING_SECONDS = 15.0


class Executor(Submitting):
    """Runs segments as Slurm jobs and takes their records as their ends; other rules run as under the parent."""

    # --- in the thread that looks after jobs ---

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Ends the jobs that are over, and yields the others."""
        if self._detached is not None:
            self.next_seconds_between_status_checks = 0.2  # nothing is waited for
            return
        if self.is_told_to_end():
            active_jobs = self._without_pending(active_jobs)
        for job in self._later.due():
            self._hand_over(job)
        outs = {out: info for info in active_jobs if (out := out_of(info)) is not None}
        for info in self._check_segments({out: info for out, info in outs.items() if out.leaves_record}):
            yield info
        for info in self._check_interruptible({out: info for out, info in outs.items() if not out.leaves_record}):
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
                self._succeed(infos[out], out.segment)
        ended = self._watch.look(waiting, self._tell)
        for out in waiting:
            end = ended.get(out.job_id)
            if end is None or time.monotonic() < out.not_before or not self._close(infos[out], out, end):
                yield infos[out]

    def _restore_vanished(self) -> None:
        """The next segment's job waits for the record before it; else the next driver makes it anew."""
        for segment in self._records.vanished(self._newest_done.values()):
            del self._newest_done[segment.run.name]
            with suppress(UnbrokenError, OSError):
                if settle(segment.run, segment.number, self._tell) is not None:
                    self._tell(f"{segment.name}: its job was ended in its last moment, its record is made anew")

    def _check_interruptible(self, infos: dict[Out, SubmittedJobInfo]) -> Iterable[SubmittedJobInfo]:
        """Jobs of rules with `resources: segments`; their notes name the runs, Slurm says when they have left."""
        notes = newest_notes([out.job_id for out in infos])
        for out in infos:
            if isinstance(out.segment, Interruptible) and (note := notes.get(out.job_id)) is not None:
                out.segment = replace(out.segment, note=note)
                if note.outcome != STARTED and not out.is_told_over:
                    self._interruptible_watch.hasten()
                out.is_told_over = note.outcome != STARTED
        ended = self._interruptible_watch.look(list(infos), self._tell)
        for out, info in infos.items():
            end = ended.get(out.job_id)
            if end is None or time.monotonic() < out.not_before or not self._close_interruptible(info, out, end):
                yield info

    def _close_interruptible(self, info: SubmittedJobInfo, out: Out, end: EndedJobOfSegment) -> bool:
        """Acts upon the end of such a job; False if it is too early to say."""
        work = out.segment
        if not isinstance(work, Interruptible):
            return False
        if end.state == "COMPLETED":
            self._end_well(info, work)
            return True
        is_late = time.monotonic() - end.since > self.latency_seconds()
        if work.note is None and not is_late:
            return False  # it may need a while to be seen here
        try:
            paused = paused_by(work, out.job_id)
            if paused is None and work.note is not None and work.note.outcome == Outcome.PAUSED.value and not is_late:
                return False  # as may the line in the history
            found = of_note(work, out.job_id, end.state, paused, self._paused.get(work.places.root, 0))
            if found is None:
                found = self._by_policy(info, out, work, end)
        except AWAY as error:
            return self._look_again(out, error)
        except FormatError as error:
            paused, found = None, JobOutcome(Follows.STOP, str(error))
        if paused is not None:
            self._paused[work.places.root] = paused.segments
        self._interruptible_watch.forget_job(out)
        self._follow(info, work, found)
        return True

    def _by_policy(self, info: SubmittedJobInfo, out: Out, work: Interruptible, end: EndedJobOfSegment) -> JobOutcome:
        asked = info.job.resources
        partition, nodes = str(asked.get("slurm_partition") or ""), int(asked.get("nodes") or 1)
        return self._interruptible_watch.verdict(judged(out, work), end.state, partition, nodes, self._tell)

    def _end_well(self, info: SubmittedJobInfo, work: Interruptible) -> None:
        self._forget(info)
        submissions.drop(work.key)
        self.needs_no_log(info)
        self.report_job_success(info)

    async def _check_others(self, infos: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Jobs of other rules, asked about by the parent at its own pace."""
        if not infos or time.monotonic() < self._others_due:
            for info in infos:
                yield info
            return
        self.next_seconds_between_status_checks = self._others_seconds or self._watch.first_seconds
        async for info in super().check_active_jobs(infos):
            yield info
        self._others_seconds = self.next_seconds_between_status_checks
        self._others_due = time.monotonic() + self._others_seconds

    def _close(self, info: SubmittedJobInfo, out: Out, end: EndedJobOfSegment) -> bool:
        """Acts upon the end of a job without a record; False if it is too early to say."""
        segment = out.segment
        try:
            if is_record_of(segment) or still_needed.is_done(segment, self._tell):
                self._succeed(info, segment)
                return True
        except LeaseError:
            out.not_before = time.monotonic() + HELD_SECONDS
            if time.monotonic() - end.since < LEAVING_SECONDS:
                return False
        except AWAY as error:
            return self._look_again(out, error)
        except UnbrokenError as error:
            self._fail(info, segment, JobOutcome(Follows.STOP, str(error)))
            return True
        asked = info.job.resources
        partition, nodes = str(asked.get("slurm_partition") or ""), int(asked.get("nodes") or 1)
        try:
            verdict = self._watch.verdict(out, end.state, partition, nodes, self._tell)
        except AWAY as error:
            return self._look_again(out, error)
        except FormatError as error:  # a newer unbroken was installed, and its job has written the history
            verdict = JobOutcome(Follows.STOP, str(error))
        self._watch.forget_job(out)
        self._follow(info, segment, verdict)
        return True

    def _look_again(self, out: Out, error: Exception) -> bool:
        out.told_away = self._tell_away(out.segment, error, out.told_away)
        out.not_before = time.monotonic() + HELD_SECONDS
        return False

    def _follow(self, info: SubmittedJobInfo, segment: Segment, verdict: JobOutcome) -> None:
        if verdict.follows in (Follows.RETRY, Follows.STOP):
            self._fail(info, segment, verdict)
            return
        if verdict.follows is Follows.AFTER:
            self._others.found_held(segment)
        self._tell(verdict.line)
        self._forget(info)
        self._hand_over(info.job)

    def _fail(self, info: SubmittedJobInfo, segment: Segment, verdict: JobOutcome) -> None:
        self._forget(info)
        submissions.drop(segment.key)
        if verdict.follows is Follows.STOP:
            self._watch.forget(segment)
            self.give_up(info.job)
        self._tell(verdict.line)
        self.report_job_error(info, aux_logs=[str(log) for log in self.logs_of(info)])

    # --- the end ---

    def _without_pending(self, infos: list[SubmittedJobInfo]) -> list[SubmittedJobInfo]:
        """Snakemake waits for jobs at work; one that has not begun may do so in days.

        A segment's job stays in the queue, where the next start finds it; that of another rule is cancelled, since
        the next start submits it again.
        """
        for job in self._later.all():
            self.leave_to_next_start(job)
        if time.monotonic() < self._pending_due:
            return infos
        if not self._pending_due:
            self._tell("told to end (SIGTERM): jobs at work are waited for, the others are left to the next start")
        self._pending_due = time.monotonic() + PENDING_SECONDS
        queued = {job.job_id for job in my_jobs() or [] if job.state == "PENDING"}
        pending = [info for info in infos if info.external_jobid in queued]
        super().cancel_jobs([info for info in pending if out_of(info) is None])
        for info in pending:
            if (out := out_of(info)) is not None:
                self._tell(f"{out.segment.name}: job {out.job_id} stays in the queue; the next start takes it over")
            self._forget(info)
            self.leave_to_next_start(info.job)
        return [info for info in infos if info not in pending]

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Also those that the other thread is just looking at."""
        with self._out_lock:
            infos = {info.external_jobid: info for info in [*active_jobs, *self._out.values()]}
        super().cancel_jobs(list(infos.values()))

    def shutdown(self) -> None:
        """As the parent; then what is left to say."""
        super().shutdown()
        if self._detached is not None:
            self._tell(self._detached.summary())
