"""The end of a run on Slurm: its waiting tasks, other runs that found no room in the queue, the page of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from unbroken.errors import FormatError, UnbrokenError
from unbroken.job import array, requeue
from unbroken.job.array import Answer
from unbroken.job.chain_job import ChainJob
from unbroken.job.left_out import any_left_out, leave_out, left_out
from unbroken.job.page_keeper import write_last
from unbroken.job.spec import path_of, read
from unbroken.runs import notify_process
from unbroken.runs.report_page import PAGE, is_off
from unbroken.slurm.commands import ask
from unbroken.slurm.job_comment import chain_in
from unbroken.slurm.queue import MyJob, my_jobs
from unbroken.slurm.this_job import restart_count

# The end of the job would end the look, and no job waits for this one.
NOTIFY_SECONDS = 120.0
# How often a job whose own run is over starts again to see whether there is room in the queue for others.
LOOKS_FOR_ROOM = 3


def end_run(job: ChainJob, jobs: Sequence[MyJob]) -> None:
    """End what waits for a run that is over or stops; the last job of all runs writes the page as it stays."""
    _cancel(job, jobs)
    submit_left_out(job.log)
    notify_process.start_and_wait(Path(), NOTIFY_SECONDS)
    here = Path().resolve()
    alive = [other for other in jobs if other.is_alive and other.job_id != job.job_id]
    others = {chain_in(other.comment) for other in alive if other.folder.resolve() == here} - {"", job.key}
    if any_left_out():
        stay_for_left_out(job)
    elif all(_is_over(key) for key in others):
        has_page = not is_off() and (not job.spec.is_rule or PAGE.exists())  # a workflow without runs has none
        job.log(f"all runs are over: {PAGE}" if has_page else "all runs are over")
        write_last()


def submit_left_out(log: Callable[[str], None]) -> None:
    """Submit a run for which the queue had no room: the job before this one has made some."""
    with left_out() as other:
        if not other:
            return
        try:
            done = array.submit(read(path_of(other)))
        except (UnbrokenError, OSError) as error:
            log(f"{other}: {error}")
            return
        log(f"there may be room in the queue now for {other}; {done.line}")
        if done.answer is not Answer.DONE:
            leave_out(other)


def stay_for_left_out(job: ChainJob) -> None:
    """Come back into the queue if no other job does: runs that end together each count themselves, and find no room."""
    if requeue.may_leave(job.job_id, _may_still_look):
        return
    if restart_count() >= LOOKS_FOR_ROOM or ask("scontrol", "requeue", job.job_id) is None:
        job.log("other runs still wait for room in the queue: start snakemake again")
        return
    job.log("other runs still wait for room in the queue: this job goes back into it to look again")


def _is_over(key: str) -> bool:
    """Return False also for a run that a newer unbroken carries on: that one writes the page when it is over."""
    try:
        return read(path_of(key)).is_over()
    except FormatError:
        return False
    except UnbrokenError:
        return True


def _may_still_look() -> list[str]:
    """Return the jobs of this folder that look for room when they start or end, neither stuck nor being ended."""
    here = Path().resolve()
    jobs = [job for job in my_jobs() or [] if chain_in(job.comment) and job.folder.resolve() == here]
    return [job.job_id for job in jobs if job.is_alive and not job.is_leaving and not job.is_stuck]


def _cancel(job: ChainJob, jobs: Sequence[MyJob]) -> None:
    if numbers := array.waiting(jobs, job.key):
        is_done = array.cancel(numbers) is not None
        job.log(f"{'canceled' if is_done else 'could not cancel'} the waiting tasks: {', '.join(numbers)}")
