"""The end of a job: the queue behind it learns from it, is filled again, or ends with the run.

A job that frees a place in the queue submits a run that the full queue did not take.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from unbroken.errors import FormatError, UnbrokenError
from unbroken.job import array, background, needs, policy
from unbroken.job.array import Answer, Submitted
from unbroken.job.background import PAGE, PageProcess, is_page_off
from unbroken.job.control import owner_of
from unbroken.job.next_attempt import Stop, next_attempt
from unbroken.job.segment_process import give_up_at, is_being_ended, note_before_work, rest_seconds
from unbroken.job.spec import ChainJob, path_of, read
from unbroken.job.submissions import forget_left_out, leave_out, left_out
from unbroken.slurm.client import ask, has_command
from unbroken.slurm.job import ListedJob
from unbroken.slurm.queue import jobs_by_accounting, my_jobs, state_behind_completing
from unbroken.slurm.this_job import restart_count
from unbroken.store.attempts import all_attempts
from unbroken.store.history import Attempt, EndKind, History, SegmentEnd

logger = logging.getLogger(__name__)

# How long a job that is being ended may take to say how.
ENDING_SECONDS = 10.0
# The end of the job would end the look, and no job waits for this one.
NOTIFY_SECONDS = 120.0
PAGE_WRITER = "A job of a run, while one is at work,"
LAST_PAGE_SECONDS = 60.0
# How often a job whose own run is over starts again to see whether the queue takes others.
LOOKS_FOR_ROOM = 3


# --- without work of its own ---


def leave_before_work(job: ChainJob, end: SegmentEnd) -> None:
    """Submit nothing and go back into no queue: the same would only happen again, there, in a minute."""
    segment, lost = job.now().next_segment() or job.now().last_segment, None
    if _own(job, History(job.folder.history).attempts()) is None:
        lost = note_before_work(job.folder, segment, end, slurm_job=job.job_id)
    next_attempt(job, segment, [lost] if lost else [])
    logger.info(f"this job ends before its work and submits no other: {end.line()}")
    if array.has_waiting(job.key) is False:
        logger.info("no task of this run waits; fix the cause, then start snakemake again")


def leave_to_owner(job: ChainJob) -> None:
    """Let the tasks that wait behind this one wait for the end of the job that works on the run, of any user."""
    owner, jobs = owner_of(job.folder), my_jobs()
    if owner is None or owner.slurm_job in ("", job.job_id) or jobs is None:
        return
    numbers = array.waiting(jobs, job.key)
    if not numbers:
        logger.info(f"no task of this run waits behind this one; Slurm job {owner.slurm_job} goes on with it")
    elif needs.change_tasks(numbers, f"Dependency=afterany:{owner.slurm_job}"):
        logger.info(f"the waiting tasks wait for the end of Slurm job {owner.slurm_job}, which works on this run")


# --- after its work ---


def look_after_the_rest(job: ChainJob, *, has_no_room: bool) -> None:
    """End the waiting tasks of a run that has reached its goal; submit the rest if no task waits."""
    jobs = _jobs_if_slurm_answers()
    if jobs is None:
        logger.warning("squeue does not answer; only tasks that wait already follow this job: see unbroken status")
        return
    state = next((other.state for other in jobs if other.job_id == job.job_id), "")
    is_leaving = state == "COMPLETING"
    if is_leaving:
        state = how_slurm_ends(job.job_id)
    if state == "CANCELLED":
        raise Stop(policy.canceled(job.job_id))
    if state in {"PENDING", "REQUEUED"}:
        return  # put back into the queue: it does the segment itself
    now = job.now()
    segment = now.next_segment()
    if segment is None:
        end_run(job, jobs)
    elif numbers := array.waiting(jobs, job.key):
        own = _own(job, all_attempts(job.folder))
        # Else a task would start only to say that no further attempt is made.  How Slurm ends a job is not known before
        # it has left, and then the next task asks.  A rule's job has asked already.
        if own is not None and own.kind.is_failure and not now.is_rule and not is_leaving and not is_being_ended():
            next_attempt(job, segment)
        _learn(job, numbers)
    elif now.submission.refills:  # there may be too little time in the seconds (KillWait) of a job at its limit
        _go_on(job, has_no_room=has_no_room or is_leaving)


def _own(job: ChainJob, attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the last attempt if this job has made it."""
    return attempts[-1] if attempts and attempts[-1].slurm_job == job.job_id else None


def _learn(job: ChainJob, numbers: Sequence[str]) -> None:
    """Let the waiting tasks ask for what this job lacked."""
    own = _own(job, all_attempts(job.folder))
    for line in needs.learn(job.now(), numbers, own) if own is not None else ():
        logger.info(line)


def _go_on(job: ChainJob, *, has_no_room: bool) -> None:
    """Provide a job for the next segment: a new array, or this job again where the queue is full."""
    segment = job.now().next_segment()
    if segment is None:
        return
    next_attempt(job, segment)  # no further job for a run that is to stop
    done = Submitted(Answer.FULL) if has_no_room else _submit_patiently(job)
    if (jobs := my_jobs()) is None:
        logger.warning("squeue does not answer, so whether a task follows is not known: see unbroken status")
    elif array.waiting(jobs, job.key):
        return
    elif done.answer is Answer.ENDED:  # which refuses nothing: how Slurm ends this job decides
        look_after_the_rest(job, has_no_room=True)
    elif done.answer is Answer.REFUSED:
        message = f"the next jobs could not be submitted: {done.said}"
        note_before_work(job.folder, segment, SegmentEnd(kind=EndKind.REFUSED, message=message))
        raise Stop(f"{message}; fix the cause, then start snakemake again")
    else:
        _come_back(job)


def _submit_patiently(job: ChainJob) -> Submitted:
    """Submit the next array, tried for some minutes: the controller may be away.

    Not in a job that is being ended, nor where Slurm refuses the jobs for good.
    """
    logger.info("no task of this run waits: submitting the next ones")
    give_up = give_up_at()
    while True:
        done = Submitted(Answer.ENDED) if is_being_ended() else array.submit(job.now())
        if done.answer not in (Answer.LATER, Answer.SOON) or time.monotonic() + rest_seconds() > give_up:
            return done
        logger.info(f"{done.line}; tried again")
        time.sleep(rest_seconds())


def _come_back(job: ChainJob) -> None:
    """Put this job back into the queue, or submit the next one; raise Stop if Slurm refuses both."""
    why = "Slurm ends this job and no task waits" if is_being_ended() else "no job was taken (the queue is full)"
    logger.info(f"{why}: this job goes back into the queue")
    is_back = ask("scontrol", "requeue", job.job_id) is not None
    # What Slurm has sent to this job may have ended scontrol before its answer.
    state = "REQUEUED" if is_back else state_behind_completing(job.job_id, restart_count())
    if state == "CANCELLED":
        raise Stop(policy.canceled(job.job_id))
    if state == "REQUEUED":
        return _learn(job, [job.job_id])
    done = array.submit(job.now())
    if array.has_waiting(job.key):
        logger.info(f"Slurm refuses to requeue job {job.job_id}: the next ones are submitted")
        return
    if done.answer is Answer.FULL:
        leave_out(job.key)
    why = f"Slurm refuses to requeue job {job.job_id} and takes no other one ({done.line})"
    raise Stop(f"{why}; to go on, start snakemake again")


def _jobs_if_slurm_answers() -> list[ListedJob] | None:
    """Return all jobs; a controller that does not answer has some minutes, then None."""
    if (jobs := my_jobs()) is not None:
        return jobs
    give_up = give_up_at() if has_command("squeue") else time.monotonic() + ENDING_SECONDS
    while jobs is None and time.monotonic() < give_up:
        time.sleep(rest_seconds())
        jobs = my_jobs()
    return jobs


def how_slurm_ends(job_id: str) -> str:
    """Return how Slurm ends this job; empty if it does not say so within seconds."""
    give_up = time.monotonic() + ENDING_SECONDS
    while not (state := state_behind_completing(job_id, restart_count())) and time.monotonic() < give_up:
        time.sleep(0.5)
    # squeue shows COMPLETING until we leave; accounting records it later, if there is any.
    return state or next((job.state for job in jobs_by_accounting([job_id]) if job.job_id == job_id), "")


# --- the run is over ---


def end_run(job: ChainJob, jobs: Sequence[ListedJob] | None) -> None:
    """End what waits for a run that is over or stops; the last job of all runs writes the page as it stays.

    `jobs` are this user's, None if Slurm does not answer.
    """
    if numbers := array.waiting(jobs or [], job.key):
        is_done = array.cancel(numbers) is not None
        logger.info(f"{'canceled' if is_done else 'could not cancel'} the waiting tasks: {', '.join(numbers)}")
    submit_left_out()
    background.notify(Path(), is_over=True, wait_seconds=NOTIFY_SECONDS)
    if left_out():
        look_again(job.job_id, jobs or [])
        return
    others = array.by_chain([other for other in jobs or [] if other.is_alive and other.job_id != job.job_id])
    if jobs is not None and all(key == job.key or _is_over(key) for key in others):
        has_page = not is_page_off() and (not job.spec.is_rule or PAGE.exists())  # a workflow without runs has none
        logger.info(f"all runs are over{f': {PAGE}' if has_page else ''}")
        page = PageProcess(Path(), PAGE_WRITER)
        page.begin(0.0)
        page.wait(LAST_PAGE_SECONDS)  # this job has nothing else to do
        page.kill()


def _is_over(key: str) -> bool:
    """Return False also for a run that a newer unbroken carries on: that one writes the page when it is over."""
    try:
        return read(path_of(key)).is_over()
    except FormatError:
        return False
    except UnbrokenError:
        return True


# --- runs for which the queue had no room ---


def submit_left_out() -> None:
    """Submit a run that the queue did not take: the job before this one has freed a place."""
    for run in left_out():
        try:
            done = array.submit(read(path_of(run)))
        except (UnbrokenError, OSError) as error:
            logger.warning(f"{run}: {error}")
            forget_left_out(run)
            return
        if done.answer is not Answer.SOON:  # else another process tries it
            logger.info(f"there may be room in the queue now for {run}; {done.line}")
            if done.answer in (Answer.DONE, Answer.FOUND):
                forget_left_out(run)
            return


def look_again(job_id: str, jobs: Sequence[ListedJob]) -> None:
    """Put this job back into the queue to look again, if no job with a higher number looks for a place later.

    A job counts itself as long as it lives, so there may be room only when this one has left.
    """
    alive = [job for chain in array.by_chain(jobs).values() for job in chain if job.is_alive and job.job_id != job_id]
    others = [job.job_id for job in alive if not job.is_leaving and not job.is_stuck]
    if any(_age(other) > _age(job_id) for other in others):
        return
    if restart_count() < LOOKS_FOR_ROOM and ask("scontrol", "requeue", job_id) is not None:
        logger.info("other runs still wait for room in the queue: this job goes back into it to look again")
    elif not others:
        logger.warning("other runs still wait for room in the queue: start snakemake again")


def _age(job_id: str) -> list[int]:
    return [int(number) for number in job_id.split("_") if number.isdecimal()]
