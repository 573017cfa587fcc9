"""Chains: for each run whose segments Snakemake asks for, the job array that does them.

A driver submits the array of a run, or finds it, and takes the segments' records as the ends of Snakemake's jobs.  What
follows the end of a job is decided by the jobs of the run; the driver acts only where no job of the run is left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from snakemake_executor_plugin_unbroken import settled
from snakemake_executor_plugin_unbroken.chain_queue import ChainQueue
from snakemake_executor_plugin_unbroken.chain_specs import ChainSpecs
from snakemake_executor_plugin_unbroken.chain_words import ChainWords
from snakemake_executor_plugin_unbroken.interruptible import Interruptible, work_of
from snakemake_executor_plugin_unbroken.job_specs import began_unix
from snakemake_executor_plugin_unbroken.others import Others
from snakemake_executor_plugin_unbroken.retry_later import Later
from snakemake_executor_plugin_unbroken.segments import Out, Segment, keep_out
from unbroken.errors import LeaseError, OutageError, UnbrokenError
from unbroken.job import array, rule_state, waiting_tasks
from unbroken.job.array import Answer, Submitted
from unbroken.job.left_out import leave_out
from unbroken.job.spec import JobSpec
from unbroken.job.stop_note import note_stop
from unbroken.program.stop_reason import StopReason
from unbroken.runs import driver_start, submissions
from unbroken.runs.history import History
from unbroken.slurm.commands import ask
from unbroken.slurm.queue import MyJob, my_jobs
from unbroken.system import fs

# Between two looks at a run that cannot be looked at: its job is not out of it yet, or the file server is away.
HELD_SECONDS = 10.0
# A job that is ending leaves the run within seconds; one whose machine is lost seems alive for longer.
LEAVING_SECONDS = 150.0
LOOK_SECONDS = 3.0
# So long may what is at work take to save after a Ctrl-C, as long as a driver waits for it.
SAVING_SECONDS = 60.0
SAVING_LOOK_SECONDS = 1.0
# A controller that is away, or a limit on jobs in the queue.
BUSY_SECONDS = 15.0
ONLY_ONE = (
    "only one job may be there (MaxSubmitJobs), so when it is over start snakemake again, or use a driver: "
    "snakemake --profile slurm"
)
# The file server, for a moment.
AWAY = (OSError, OutageError)


class Host(Protocol):
    """What a chain needs of the executor."""

    @property
    def is_detached(self) -> bool: ...
    def jobs_of_run(self, run: str) -> list[Any]: ...
    def latency_seconds(self) -> float: ...
    def hand_over(self, job: Any) -> None: ...
    def submitted(self, info: SubmittedJobInfo) -> None: ...
    def succeeded(self, info: SubmittedJobInfo, began_unix: float | None) -> None: ...
    def failed(self, info: SubmittedJobInfo, line: str, is_final: bool, logs: Sequence[str] = ()) -> None: ...
    def goes_on_without(self, job: Any) -> None: ...
    def log(self, line: str) -> None: ...


class Chains:
    """The runs that this driver was asked for; called from threads."""

    def __init__(self, host: Host, words: ChainWords, most_tasks: int) -> None:
        self._host = host
        self._specs = ChainSpecs(host, words, most_tasks)
        self._queue = ChainQueue()
        self._later = Later()
        self._others = Others()
        self._behind: dict[str, list[str]] = {}  # jobs of others, by chain
        self._leaving: dict[Segment, float] = {}
        self._told: dict[str, str] = {}
        self._out: dict[Segment, SubmittedJobInfo] = {}
        self._lock = threading.Lock()
        self._submitted: dict[str, Submitted] = {}
        self._begins: tuple[float, str, str] | None = None  # when the newest array may start, its chain, its number

    # --- a segment's job is handed over ---

    def run_job(self, job: Any, segment: Segment) -> None:
        """See to the segment: it is done, or a job of its run does it, or one is submitted now, or later."""
        try:
            with fs.storage_errors(segment.places.root):  # what a user has to mend is not waited for
                self._run_job(job, segment)
        except AWAY as error:
            self._look_later(job, segment, error)
        except UnbrokenError as error:
            self._host.failed(SubmittedJobInfo(job), str(error), is_final=True)

    def due(self) -> list[Any]:
        """Return the jobs of Snakemake that are to be handed over again now."""
        return self._later.due()

    def postponed(self) -> list[Any]:
        """Return all jobs that were to be handed over again later, once."""
        return self._later.all()

    def wake_scheduler(self, waits: bool = False) -> None:
        """Let Slurm start what was submitted last, once its begin has come; wait for that moment if `waits`."""
        if (begins := self._begins) is None:
            return
        if waits:
            time.sleep(max(0.0, begins[0] - time.monotonic()))
        if time.monotonic() >= begins[0]:
            self._begins = None
            array.wake_scheduler(*begins[1:])

    def seconds_to_next(self) -> float | None:
        """Return how long until the next job is to be handed over again; None if there is none."""
        return self._later.seconds_to_next()

    def _run_job(self, job: Any, segment: Segment) -> None:
        try:
            if settled.is_done(segment, self._host.log):
                if segment.key not in self._submitted:  # else a task ran ahead of Snakemake
                    self._host.log(f"{segment.name}: its work is done, no job needed")
                self.succeed(SubmittedJobInfo(job), segment)
                return
        except LeaseError:
            # Each attempt may ask Slurm who holds the run, so they become fewer.
            waited = time.monotonic() - self._leaving.setdefault(segment, time.monotonic())
            if waited < LEAVING_SECONDS:
                self._later.add(1.0 + waited, job)
                return
        self._leaving.pop(segment, None)
        spec = self._specs.of(job, segment)
        if self._host.is_detached and segment.key in self._submitted:
            self._host.goes_on_without(job)
            return
        self._find_or_submit(job, segment, spec)

    def _find_or_submit(self, job: Any, segment: Segment, spec: JobSpec) -> None:
        newest = submissions.newest(spec.key)
        if newest is not None and newest.is_being_filled:
            self._later.add(1.0, job)
            return
        jobs = self._queue.jobs(newest)
        if jobs is None:
            self._say_once(segment, "squeue does not answer; nothing is submitted until it does")
            self._later.add(BUSY_SECONDS, job)
            return
        alive = array.alive_of(jobs, spec.key)
        leaving = [other for other in alive if other.is_leaving]
        does_it = [other for other in alive if other not in leaving and not _has_done_its_own(spec, segment, other)]
        if does_it:
            self._adopt(job, segment, spec, does_it)
        elif leaving:
            self._say_once(segment, f"job {leaving[0].job_id} is ending; the segment goes on as soon as it has left")
            self._queue.forget()
            self._later.add(LOOK_SECONDS, job)
        elif not self._waits_for_others(job, segment, newest):
            self._submit(job, segment, spec, newest, jobs)

    def _adopt(self, job: Any, segment: Segment, spec: JobSpec, alive: Sequence[MyJob]) -> None:
        number = alive[0].job_id.partition("_")[0]
        if segment.key not in self._submitted:
            self._host.log(f"{segment.name}: job {number} of its run is in the queue or running already, taken over")
            if self._must_be_replaced(segment, spec, alive):
                self._replace(job, segment, spec)
                return
            self._submitted[segment.key] = Submitted(Answer.DONE, number, len(alive))
        self._report(job, segment, number)

    def _must_be_replaced(self, segment: Segment, spec: JobSpec, alive: Sequence[MyJob]) -> bool:
        """Bring the waiting tasks up to date; return True if they had to be canceled instead."""
        update = waiting_tasks.follow_plan(spec, [other.job_id for other in alive if other.state == "PENDING"])
        if update.line:
            self._host.log(f"{segment.chain_name}: {update.line}")
            self._queue.forget()
        return update.is_canceled

    def _replace(self, job: Any, segment: Segment, spec: JobSpec) -> None:
        """Submit other tasks for those that were canceled, behind the one at work if there is one."""
        newest, jobs = submissions.newest(spec.key), self._queue.jobs(None)
        at_work = next((other.job_id for other in array.alive_of(jobs or [], spec.key)), "")
        if jobs is None or not at_work:
            self._submit(job, segment, spec, newest, jobs or [])
            return
        done = array.submit_knowing(spec, newest, jobs, at_work)
        if done.job_id:
            self._host.log(f"{segment.chain_name}: submitted array of {done.tasks} tasks {done.job_id}")
        # Where none was taken now, the one at work submits them when it ends.
        number = done.job_id or at_work.partition("_")[0]
        self._submitted[segment.key] = Submitted(Answer.DONE, number, done.tasks)
        self._report(job, segment, number)

    def _submit(
        self,
        job: Any,
        segment: Segment,
        spec: JobSpec,
        newest: submissions.Submission | None,
        jobs: Sequence[MyJob],
    ) -> None:
        if spec.is_rule:
            rule_state.begin_again(spec.key)
        done = array.submit_knowing(spec, newest, jobs, others=self._behind.get(spec.key, []))
        if done.answer is Answer.DONE and done.job_id:
            self._submitted[segment.key] = done
            self._begins = (time.monotonic() + array.WAKE_SECONDS, segment.key, done.job_id)
            tasks = f"array of {done.tasks} tasks" if done.tasks > 1 else "job"
            where = f"; {done.said}" if done.said else ""
            self._host.log(f"{segment.chain_name}: submitted {tasks} {done.job_id}{where}")
            self._report(job, segment, done.job_id)
        elif done.answer is Answer.REFUSED:
            line = f"{segment.name}: Slurm refuses the job ({done.said}); fix the config, then start snakemake again"
            self.fail(SubmittedJobInfo(job), segment, line, is_final=True)
        elif self._host.is_detached and done.answer is Answer.FULL:
            self._submitted[segment.key] = done
            leave_out(segment.key)
            self._host.log(f"{segment.chain_name}: {done.line}; {_who_submits_it()}")
            self._host.goes_on_without(job)
        else:
            self._queue.forget()  # Slurm may have taken it although its answer was lost
            self._say_once(segment, f"{done.line}; tried again")
            self._later.add(1.0 if done.answer is Answer.DONE else BUSY_SECONDS, job)

    def _report(self, job: Any, segment: Segment, job_id: str) -> None:
        if self._host.is_detached:
            self._host.goes_on_without(job)
            return
        info = SubmittedJobInfo(job, external_jobid=job_id)
        keep_out(info, Out(segment, job_id, told_pauses=segment.pauses()))
        with self._lock:
            self._out[segment] = info
        self._host.submitted(info)

    def _waits_for_others(self, job: Any, segment: Segment, newest: submissions.Submission | None) -> bool:
        """Return True if another user, or a job on another cluster, works on the run: the segment waits for its end.

        Without a driver nobody waits: the tasks of the run do, in the queue.
        """
        other = self._others.look(segment, newest)
        if other is None:
            return False
        if other.line:
            self._host.log(other.line)
        if self._host.is_detached:
            self._behind[segment.key] = [other.job_id] if other.job_id else []
            return False
        self._later.add(other.wait_seconds, job)
        return True

    def _look_later(self, job: Any, segment: Segment, error: Exception) -> None:
        """Costs no retry; without a driver nobody looks later, and whoever typed the command reads why."""
        if self._host.is_detached:
            self._host.failed(SubmittedJobInfo(job), str(error), is_final=True)
            return
        self._say_once(segment, f"{error}; tried again every {HELD_SECONDS:g} s")
        self._later.add(HELD_SECONDS, job)

    # --- its end ---

    def succeed(self, info: SubmittedJobInfo, segment: Segment) -> None:
        """The record of the segment is there."""
        self.forget(segment)
        self._host.succeeded(info, began_unix(segment))

    def resume(self, info: SubmittedJobInfo, segment: Segment, line: str) -> None:
        """No job of the run is left, and the same segment goes on: submit the next array."""
        self._host.log(line)
        self.forget(segment)
        self._queue.forget()
        self._host.hand_over(info.job)

    def held(self, segment: Segment) -> None:
        """A job of ours has left because another one works on the run."""
        self._others.found_held(segment)

    def fail(self, info: SubmittedJobInfo, segment: Segment, line: str, is_final: bool) -> None:
        """The segment failed; no further attempt is made if it `is_final`.

        Not if a task has left the record in this moment: Snakemake removes the output of a job that failed.
        """
        if segment.has_record():
            self.succeed(info, segment)
            return
        self.forget(segment)
        self._host.failed(info, line, is_final, _newest_log(self._specs.known(segment)))

    def forget(self, segment: Segment) -> None:
        """This driver is done with the segment."""
        with self._lock:
            self._out.pop(segment, None)
        self._told.pop(segment.name, None)

    def is_retried_by_snakemake(self, segment: Segment) -> bool:
        """Return True if Snakemake counts the attempts: of single jobs, and of a rule's job that no job could begin."""
        return isinstance(segment, Interruptible) or not self._specs.known(segment).submission.refills

    def spec_of(self, segment: Segment) -> JobSpec:
        """Return what the jobs of the run were told."""
        return self._specs.known(segment)

    def cancel(self, extra: Iterable[SubmittedJobInfo] = ()) -> None:
        """Cancel all jobs of the runs of this driver (Ctrl-C); those at work may save first."""
        with self._lock:
            # Also those whose next segment Snakemake has not asked for yet: their tasks run ahead of it.
            keys = {segment.key for segment in self._out} | set(self._submitted)
            keys |= {segment.key for info in extra if (segment := work_of(info.job)) is not None}
        jobs = my_jobs()
        for key in keys:
            if jobs is None or array.alive_of(jobs, key):  # what is at work submits no further task
                note_stop(key, driver_start.current(), StopReason.CTRL_C.value)
        if jobs is not None:
            jobs = self._let_save([job for key in keys for job in array.alive_of(jobs, key)])
        alive = [job.job_id for key in keys for job in array.alive_of(jobs or [], key)]
        noted = [found.job_id for key in keys if jobs is None and (found := submissions.newest(key)) is not None]
        if numbers := array.arrays_of(number for number in [*alive, *noted] if number):
            ask("scancel", *numbers)

    def _let_save(self, alive: Sequence[MyJob]) -> list[MyJob] | None:
        """Cancel what waits, tell what works to save and leave, and wait until it has; return the jobs after that."""
        array.cancel([job.job_id for job in alive if job.state == "PENDING"])
        working = [job.job_id for job in alive if job.state == "RUNNING"]
        if not working:
            return my_jobs()
        self._host.log(f"Ctrl-C: what works saves and leaves within {SAVING_SECONDS:g} s: job {', '.join(working)}")
        ask("scancel", "--signal=INT", *working)
        give_up = time.monotonic() + SAVING_SECONDS
        while (jobs := my_jobs()) is not None and time.monotonic() < give_up:
            if not any(job.is_alive and job.job_id in working for job in jobs):
                break
            time.sleep(SAVING_LOOK_SECONDS)
        return jobs

    def summary(self) -> str:
        """Return one line for the user, who is about to log out."""
        out = [done for done in self._submitted.values() if done.answer is Answer.DONE]
        return f"jobs of {len(out)} runs are in the queue, and you may log out; see: unbroken status"

    def _say_once(self, segment: Segment, line: str) -> None:
        if self._told.get(segment.name) != line:
            self._told[segment.name] = line
            self._host.log(f"{segment.name}: {line}")


def _who_submits_it() -> str:
    """Return who submits a run for which the queue has no room: a job of another run counts itself as long as it is."""
    alive = [job for job in my_jobs() or [] if job.is_alive]
    if not alive:
        return "none of your jobs is there to submit it later, so start snakemake again when there is room"
    return "a job of another run submits it later" if len(alive) > 1 else ONLY_ONE


def _has_done_its_own(spec: JobSpec, segment: Segment, job: MyJob) -> bool:
    """Return True for a single job that has done its segment and does no other: it is about to leave.

    Snakemake asks for the next one as soon as the record is there; a job for it may wait behind this one.
    """
    if spec.submission.refills:
        return False
    attempts = History(segment.places.history).attempts()
    return any(
        attempt.slurm_job == job.job_id and attempt.segment != segment.number and attempt.kind.settles
        for attempt in attempts
    )


def _newest_log(spec: JobSpec) -> list[str]:
    """Return Slurm's log of the run's last job, if there is one."""
    found = list[tuple[int, str]]()
    for log in Path(spec.submission.logs).glob("slurm-*.log"):
        with suppress(OSError):  # removed in this moment
            found.append((log.stat().st_mtime_ns, str(log)))
    return [max(found)[1]] if found else []
