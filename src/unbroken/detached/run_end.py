"""The end of a detached run: its pending jobs, other runs that found no room in the queue, the page of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from unbroken.detached import last_look, resubmit
from unbroken.detached.page_keeper import write_last
from unbroken.detached.pending_jobs import run_of_detached_job, waiting
from unbroken.detached.successors import DONE
from unbroken.detached.targets import is_over
from unbroken.errors import FormatError
from unbroken.runs import notify_process
from unbroken.runs.report_page import PAGE, is_off
from unbroken.slurm.commands import ask
from unbroken.slurm.queue import MyJob, my_jobs
from unbroken.slurm.this_job import restart_count

# The end of the job would end the look, and no job waits for this one.
NOTIFY_SECONDS = 120.0
# How often a job whose own run is over starts again to see whether there is room in the queue for others.
LOOKS_FOR_ROOM = 3


def end_run(run: str, start: str, jobs: Sequence[MyJob], job_id: str, tell: Callable[[str], None]) -> None:
    """Nothing more is to be done for this run; the last job of all runs writes the page as it stays."""
    _cancel(run, jobs, tell)
    submit_left_out(start, tell)
    notify_process.start_and_wait(Path(), NOTIFY_SECONDS)
    here = Path().resolve()
    alive = [job for job in jobs if job.is_alive and job.job_id != job_id and job.folder.resolve() == here]
    others = {name for job in alive if (name := run_of_detached_job(job)) and name != run}
    if resubmit.any_left_out():
        stay_for_left_out(job_id, tell)
    elif all(_is_over(name) for name in others):
        tell("all runs are over" if is_off() else f"all runs are over: {PAGE}")
        write_last()


def _is_over(run: str) -> bool:
    """False also for one that a newer unbroken carries on: it writes the page when it is over."""
    try:
        return is_over(run)
    except FormatError:
        return False


def stay_for_left_out(job_id: str, tell: Callable[[str], None]) -> None:
    """Runs that end together each count themselves, and so find no room for another: one must come back to look."""
    if last_look.may_leave(job_id, _may_still_look):
        return
    if restart_count() >= LOOKS_FOR_ROOM or ask("scontrol", "requeue", job_id) is None:
        tell("other runs still wait for room in the queue: start snakemake again")
        return
    tell("other runs still wait for room in the queue: this job goes back into it to look again")


def _may_still_look() -> list[str]:
    """The jobs of this folder that look for room when they start or end, and are neither stuck nor being ended."""
    here = Path().resolve()
    jobs = [job for job in my_jobs() or [] if run_of_detached_job(job) and job.folder.resolve() == here]
    return [job.job_id for job in jobs if job.is_alive and not job.is_leaving and not job.is_stuck]


def _cancel(run: str, jobs: Sequence[MyJob], tell: Callable[[str], None]) -> None:
    numbers = waiting(jobs, run, Path())
    if numbers:
        is_done = ask("scancel", "--state=PENDING", *numbers) is not None
        tell(f"{'cancelled' if is_done else 'could not cancel'} the pending jobs: {', '.join(numbers)}")


def submit_left_out(start: str, tell: Callable[[str], None]) -> None:
    """A run for which the queue had no room: the job before this one has made some."""
    with resubmit.left_out() as other:
        if other:
            said = resubmit.submit(other, start)
            tell(f"there may be room in the queue now for {other}; {said}")
            if said != DONE:
                resubmit.leave_out(other)
