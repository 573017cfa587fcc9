"""The pending jobs of a detached run, and how it ends them when it has reached its goal or stops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbroken.slurm.commands import ask
from unbroken.slurm.job_comment import run_in
from unbroken.slurm.queue import MyJob, my_jobs

# How the names of detached jobs begin; such a job does whichever segment of its run comes next.
DETACHED_JOB_NAME = "unbroken-slot"
# How those of them begin that a driver has queued early: they submit no other ones.
DRIVEN_JOB_NAME = f"{DETACHED_JOB_NAME}-driven"


def is_detached_job_of(job: MyJob, run: str, base: Path) -> bool:
    """True for a job that was submitted for a run of this working directory without a driver."""
    is_here = job.folder.resolve() == base.resolve()
    return job.name.startswith(DETACHED_JOB_NAME) and is_here and run_in(job.comment) == run


def submits_the_next(job: MyJob) -> bool:
    """True for a job that looks after those behind it, whoever has submitted it."""
    return job.name.startswith(DETACHED_JOB_NAME) and not job.name.startswith(DRIVEN_JOB_NAME)


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
    """Cancels the jobs of a run that have not started yet; their numbers, None if Slurm does not answer.

    A detached run has such jobs, and one with `queue_wait_minutes`; for any other this does nothing.
    """
    jobs = my_jobs()
    if jobs is None:
        return None
    numbers = waiting(jobs, run, base)
    # Only while they wait: one that has started meanwhile is somebody's work.
    return numbers if not numbers or ask("scancel", "--state=PENDING", *numbers) is not None else None
