"""The jobs of a detached run in the queue, and how it ends those that wait when it has reached its goal or stops."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from unbroken.detached.segment_command import is_being_ended
from unbroken.slurm.commands import ask
from unbroken.slurm.job_comment import run_in
from unbroken.slurm.queue import MyJob, my_jobs

# How the names of detached jobs begin; such a job does whichever segment of its run comes next.
DETACHED_JOB_NAME = "unbroken-slot"
# How long a job that Slurm ends may take to leave (KillWait), and how often the queue is asked.
LEAVING_SECONDS = 300.0
LOOK_SECONDS = 1.0


def is_detached_job_of(job: MyJob, run: str, base: Path) -> bool:
    """True for a job that was submitted for a run of this working directory without a driver."""
    is_here = job.folder.resolve() == base.resolve()
    return job.name.startswith(DETACHED_JOB_NAME) and is_here and run_in(job.comment) == run


def submits_the_next(job: MyJob) -> bool:
    """Return True for a job that looks after those behind it, whoever has submitted it."""
    return job.name.startswith(DETACHED_JOB_NAME)


def run_of_detached_job(job: MyJob) -> str:
    """The run that such a job was submitted for; empty for other jobs."""
    return run_in(job.comment) if job.name.startswith(DETACHED_JOB_NAME) else ""


def waiting(jobs: Sequence[MyJob], run: str, base: Path) -> list[str]:
    """The numbers of a run's jobs that have not started yet."""
    return [job.job_id for job in jobs if job.state == "PENDING" and is_detached_job_of(job, run, base)]


def has_waiting(run: str, base: Path = Path()) -> bool:
    """False also if Slurm does not answer: that is no job that waits."""
    return bool(waiting(my_jobs() or [], run, base))


def wait_for(job_id: str, numbers: Sequence[str]) -> bool:
    """Lets the first of these waiting jobs wait for the end of anybody's job; the others stand behind it anyway.

    Of an array all, which do not.
    """
    array, _, task = numbers[0].partition("_")
    first = [number for number in numbers if task and number.startswith(f"{array}_")] or numbers[:1]
    return ask("scontrol", "update", f"JobId={','.join(first)}", f"Dependency=afterany:{job_id}") is not None


def cancel_waiting(run: str, base: Path = Path()) -> list[str] | None:
    """Cancel the jobs of a detached run that have not started yet; return their numbers, None if Slurm does not answer.

    An attached run has no such jobs: for it this does nothing.
    """
    jobs = my_jobs()
    if jobs is None:
        return None
    numbers = waiting(jobs, run, base)
    # Only while they wait: one that has started meanwhile is somebody's work.
    return numbers if not numbers or ask("scancel", "--state=PENDING", *numbers) is not None else None


def wait_until_left(tasks: Sequence[str]) -> None:
    """Wait until these tasks of an array, which come before the task that asks, have left their nodes.

    The next task of an array starts while Slurm still ends the one before, so nobody can say yet how that one ended.  A
    job that depends on another one starts when that has left.
    """
    give_up = time.monotonic() + LEAVING_SECONDS
    while tasks and time.monotonic() < give_up and not is_being_ended():
        if not any(job.is_leaving and job.job_id in tasks for job in my_jobs() or []):
            return
        time.sleep(LOOK_SECONDS)
