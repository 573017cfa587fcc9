"""Control the jobs of a run, as a driver does: find its tasks in the queue or submit them; end them when a user asks.

What waits is canceled then, and what works saves first.  Others may work on the run too: another user, or a machine
without Slurm.
"""

from __future__ import annotations

import getpass
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from unbroken.errors import FormatError, LeaseError
from unbroken.job import rule_state, submissions
from unbroken.job.array import Answer, Submitted, alive_of, arrays_of, cancel, submit_knowing
from unbroken.job.needs import follow_plan
from unbroken.job.next_attempt import note_stop
from unbroken.job.spec import JobSpec
from unbroken.job.submissions import Submission
from unbroken.slurm.client import ask as ask_slurm
from unbroken.slurm.client import may_ask_here
from unbroken.slurm.job import ListedJob
from unbroken.slurm.queue import my_jobs
from unbroken.store.claim import Claim, HolderWatch, claim_path
from unbroken.store.history import History
from unbroken.store.layout import RunFolder
from unbroken.store.lease import HEARTBEAT_SECONDS, current_claim

logger = logging.getLogger(__name__)

# Running segments may take so long to save, as long as a driver waits for them.
SAVING_SECONDS = 60.0
LOOK_SECONDS = 1.0


# --- others that work on a run ---


@dataclass(frozen=True)
class Other:
    """Hold what else works on a run, or is in the queue for it; `job_id` is its job or array, empty without Slurm.

    The run's own tasks wait in the queue for the end of that job; without one a driver waits.
    """

    job_id: str
    line: str


class OtherOwner:
    """Look for others that work on a run."""

    def __init__(self) -> None:
        self._watch = HolderWatch(HEARTBEAT_SECONDS)
        self.was_met = False  # a job of this user has left because another one works on the run

    def find(self, spec: JobSpec, newest: Submission | None) -> Other | None:
        """Return what works on the run; None if nothing does, as far as can be known."""
        owner = owner_of(spec.folder)
        if owner is not None and self._works(spec, owner):
            number = owner.slurm_job.partition("_")[0] if may_ask_here(owner.slurm_cluster) else ""
            return Other(number, f"{owner.user} works on this run, {owner.describe()}")
        self.was_met = False
        job = newest.job_of_other_user() if newest is not None else None
        return Other(newest.job_id, f"{job.user}'s job {newest.job_id} is out for it") if newest and job else None

    def _works(self, spec: JobSpec, owner: Claim) -> bool:
        """Return False once it is known to be gone; jobs of this user are in the queue, or were met."""
        if owner.user == getpass.getuser() and not self.was_met:
            return False
        return not self._watch.why_free(claim_path(spec.folder.lease, owner.token), owner)


def owner_of(folder: RunFolder) -> Claim | None:
    """Return the owner of the run; None also where its lease cannot be read: a job finds out, and reports it."""
    with suppress(LeaseError, FormatError, OSError):
        owner, why_free = current_claim(folder.lease)
        return None if why_free else owner
    return None


# --- the tasks of a run ---


def ensure(
    spec: JobSpec,
    segment: int,
    ask: Callable[[Submission | None], list[ListedJob] | None],
    find_other: Callable[[JobSpec, Submission | None], Other | None],
    *,
    is_start: bool,
) -> Submitted:
    """Return which tasks of the run are in the queue, after submitting some if there were none for the segment.

    `ask` returns this user's jobs, no older than a submission.  `find_other` names the other job on the run: the
    tasks wait for the end of that one's job.  At the start of a driver, tasks that wait are changed to what it wants.
    Raise OSError if the notes on the run cannot be read or written.
    """
    newest = submissions.newest(spec.key)
    if newest is not None and newest.is_being_filled:
        return Submitted(Answer.SOON)
    jobs = ask(newest)
    if jobs is None:
        return Submitted(Answer.LATER, said="squeue does not answer")
    alive = alive_of(jobs, spec.key)
    leaving = [job for job in alive if job.is_leaving]
    doing = [job for job in alive if job not in leaving and not _has_done_its_own(spec, segment, job)]
    if doing:
        return _found(spec, doing, is_start=is_start)
    if leaving:
        return Submitted(Answer.LEAVING, leaving[0].job_id)
    if is_start and spec.is_rule:
        rule_state.begin_again(spec.key)
    other = find_other(spec, newest)
    if other is not None and not other.job_id:
        return Submitted(Answer.HELD, said=other.line)
    done = submit_knowing(spec, newest, jobs, others=[other.job_id] if other else [])
    return replace(done, said=f"behind job {other.job_id}: {other.line}") if other and done.job_id else done


def _found(spec: JobSpec, jobs: Sequence[ListedJob], *, is_start: bool) -> Submitted:
    """Bring the waiting tasks up to date, and submit others for those that had to be canceled for that."""
    found = Submitted(Answer.FOUND, jobs[0].job_id.partition("_")[0], len(jobs))
    waiting = [job.job_id for job in jobs if job.is_waiting]
    line, is_changed = follow_plan(spec, waiting) if is_start else ("", True)
    if is_changed:
        return replace(found, said=line)
    if cancel(waiting) is None:
        silent = "the waiting tasks still ask for what the config said before: Slurm does not answer"
        return replace(found, said=silent)
    line = "Slurm cannot change the waiting tasks as the config wants: they are submitted again and lose their age"
    if (left := my_jobs()) is None:  # a running task submits its successor when it ends; else a driver asks again
        return Submitted(Answer.LATER, said=f"{line}; squeue does not answer")
    at_work = next((job.job_id for job in alive_of(left, spec.key)), "")
    done = submit_knowing(spec, submissions.newest(spec.key), left, at_work)
    # Where none was taken now, the running one submits them when it ends.
    return replace(found if at_work and not done.job_id else done, said=line)


def _has_done_its_own(spec: JobSpec, segment: int, job: ListedJob) -> bool:
    """Return True for a single job that has done its segment and does no other: it is about to leave.

    Snakemake asks for the next one as soon as the record is there; a job for it may wait behind this one.
    """
    if spec.submission.refills:
        return False
    return any(
        attempt.slurm_job == job.job_id and attempt.segment != segment and attempt.kind.settles
        for attempt in History(spec.folder.history).attempts()
    )


# --- the end ---


def cancel_runs(keys: Collection[str], start: str, why: str) -> None:
    """Cancel all jobs of these chains; running ones are asked to save, and canceled if they do not end in time.

    `why` is noted for the running ones that belong to the start of snakemake that `start` names.
    """
    jobs = my_jobs()
    for key in keys:
        if jobs is None or alive_of(jobs, key):  # the running job submits no further task
            note_stop(key, start, why)
    if jobs is not None:
        jobs = _let_save([job for key in keys for job in alive_of(jobs, key)])
    alive = [job.job_id for key in keys for job in alive_of(jobs or [], key)]
    noted = [found.job_id for key in keys if jobs is None and (found := submissions.newest(key)) is not None]
    if numbers := arrays_of(number for number in [*alive, *noted] if number):
        ask_slurm("scancel", *numbers)


def _let_save(alive: Sequence[ListedJob]) -> list[ListedJob] | None:
    """Cancel waiting jobs, ask running ones to save and end, and wait for that; return the jobs after that."""
    cancel([job.job_id for job in alive if job.is_waiting])
    working = [job.job_id for job in alive if job.state == "RUNNING"]
    if not working:
        return my_jobs()
    logger.info(f"Ctrl-C: what works saves and leaves within {SAVING_SECONDS:g} s: job {', '.join(working)}")
    ask_slurm("scancel", "--signal=INT", *working)
    give_up = time.monotonic() + SAVING_SECONDS
    while (jobs := my_jobs()) is not None and time.monotonic() < give_up:
        if not any(job.is_alive and job.job_id in working for job in jobs):
            break
        time.sleep(LOOK_SECONDS)
    return jobs
