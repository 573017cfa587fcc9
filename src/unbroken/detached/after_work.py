"""The end of a job: the queue behind it is told what it learned, or is filled again, or ended with the run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from unbroken.detached import adjust_pending, resubmit
from unbroken.detached.detached_job import DetachedJob
from unbroken.detached.next_attempt import Stop, next_attempt
from unbroken.detached.pending_jobs import has_waiting, waiting
from unbroken.detached.run_end import end_run
from unbroken.detached.segment_command import give_up_at, is_being_ended, rest_seconds
from unbroken.detached.successors import DONE, ENDED
from unbroken.detached.targets import is_over
from unbroken.runs import attempts as endings
from unbroken.runs.history import History
from unbroken.runs.job_note import BeforeWork
from unbroken.runs.outcome import Outcome
from unbroken.slurm.commands import ask, has_command
from unbroken.slurm.queue import MyJob, ended_states, my_jobs, state_behind_completing
from unbroken.slurm.this_job import restart_count

# How long a job that is being ended may take to say how.
ENDING_SECONDS = 10.0


def is_quiet(this_job: DetachedJob, job_id: str) -> bool:
    """True if the segment was done, more are to be done, and a job behind this one does them: Slurm is not asked."""
    attempts = History(this_job.places.history).attempts()
    is_ours = bool(attempts) and attempts[-1].slurm_job == job_id
    return is_ours and attempts[-1].outcome is Outcome.PAUSED and this_job.next_segment() is not None


def look_after_the_rest(this_job: DetachedJob, job_id: str, has_no_room: bool) -> None:
    """Ends the waiting jobs of a run that has reached its goal; submits the rest if no job waits."""
    jobs = _jobs_if_slurm_answers()
    if jobs is None:
        this_job.tell(
            "squeue does not answer; nobody follows this job but those that wait already: see unbroken status"
        )
        return
    state = next((job.state for job in jobs if job.job_id == job_id), "")
    is_leaving = state == "COMPLETING"
    if is_leaving:
        state = how_slurm_ends(job_id)
    if state == "CANCELLED":
        raise Stop(f"job {job_id} was cancelled; to go on, start snakemake again")
    if state in {"PENDING", "REQUEUED"}:
        return  # put back into the queue: it will do the segment itself
    if is_over(this_job.run, this_job.told_segments):
        end_run(this_job.run, this_job.start, jobs, job_id, this_job.tell)
    elif numbers := waiting(jobs, this_job.run, Path()):
        _learn(this_job, job_id, numbers)
    else:  # there may be too little time in the seconds (KillWait) of a job at its limit
        _go_on(this_job, job_id, has_no_room or is_leaving)


def _learn(this_job: DetachedJob, job_id: str, numbers: Sequence[str]) -> None:
    if not numbers:
        return
    last = History(this_job.places.history).attempts()[-1:]
    if last and last[0].slurm_job == job_id:
        for line in adjust_pending.learn(this_job.run, numbers, last[0], this_job.memory_growth):
            this_job.tell(line)


def _go_on(this_job: DetachedJob, job_id: str, has_no_room: bool) -> None:
    """Somebody has to do the next segment: a new job, or this one again where the queue has no room for another."""
    segment = this_job.next_segment()
    if segment is None:
        return
    next_attempt(this_job, segment)  # no further job for a run that is to stop
    said = DONE
    if not has_no_room:
        this_job.tell("no job of this run is pending: submitting the next ones")
        said = resubmit.submit_patiently(this_job.run, this_job.start, job_id, this_job.tell)
    jobs = my_jobs()
    if _is_followed(this_job, job_id, jobs or []):
        return
    if said.startswith(ENDED):  # which refuses nothing: how Slurm ends this job decides
        return look_after_the_rest(this_job, job_id, has_no_room=True)
    if said != DONE:
        last = next(reversed(History(this_job.places.history).attempts()), None)
        message = f"the next jobs could not be submitted: {said}"
        endings.note(this_job.places, endings.before_work(last, segment, BeforeWork.REFUSED, message), this_job.tell)
        raise Stop(f"{message}; fix the cause, then start snakemake again")
    if jobs is None:
        this_job.tell("squeue does not answer, so nobody knows whether a job follows: see unbroken status")
        return
    _come_back(this_job, job_id)


def _come_back(this_job: DetachedJob, job_id: str) -> None:
    """Puts this job back into the queue; Stop if nothing goes on."""
    why = "Slurm ends this job and no other waits" if is_being_ended() else "none was taken (the queue is full)"
    this_job.tell(f"{why}: this job goes back into the queue")
    if ask("scontrol", "requeue", job_id) is not None:
        return _learn(this_job, job_id, [job_id])
    if state_behind_completing(job_id, restart_count()) == "CANCELLED":
        raise Stop(f"job {job_id} was cancelled; to go on, start snakemake again")
    said = resubmit.submit(this_job.run, this_job.start, job_id, is_last_chance=True)
    if not has_waiting(this_job.run):
        raise Stop(
            f"Slurm refuses to requeue job {job_id} and takes no other one ({said}); to go on, start snakemake again"
        )
    this_job.tell(f"Slurm refuses to requeue job {job_id}: the next ones are submitted")


def _jobs_if_slurm_answers() -> list[MyJob] | None:
    """All jobs; a controller that does not answer has some minutes, and None is said if it does not come back."""
    give_up = give_up_at() if has_command("squeue") else time.monotonic() + ENDING_SECONDS
    while (jobs := my_jobs()) is None and time.monotonic() < give_up:
        time.sleep(rest_seconds())
    return jobs


def how_slurm_ends(job_id: str) -> str:
    """How Slurm ends this job; empty if it does not say so within seconds."""
    give_up = time.monotonic() + ENDING_SECONDS
    while not (state := state_behind_completing(job_id, restart_count())) and time.monotonic() < give_up:
        time.sleep(0.5)
    # squeue shows COMPLETING until we leave; accounting hears of it later, if there is any.
    return state or ended_states([job_id]).get(job_id, "")


def _is_followed(this_job: DetachedJob, job_id: str, jobs: Sequence[MyJob]) -> bool:
    """Return True if another job of the run waits."""
    return bool(set(waiting(jobs, this_job.run, Path())) - {job_id})
