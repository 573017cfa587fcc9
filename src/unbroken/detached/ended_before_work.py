"""A job that leaves without work of its own: refused, something is away, or another job works on the run."""

from __future__ import annotations

import os
from pathlib import Path

from unbroken.detached.detached_job import DetachedJob
from unbroken.detached.next_attempt import next_attempt
from unbroken.detached.pending_jobs import has_waiting, wait_for, waiting
from unbroken.errors import LeaseError
from unbroken.runs import attempts as endings
from unbroken.runs.history import History
from unbroken.runs.job_note import BeforeWork
from unbroken.runs.lease import current_claim
from unbroken.slurm.queue import my_jobs


def leave_before_work(this_job: DetachedJob, job_id: str, why: BeforeWork, message: str) -> None:
    """Submits nothing and goes back into no queue: the same would only happen again, there, in a minute."""
    segment = this_job.next_segment() or this_job.segments
    lines = History(this_job.places.history).attempts()
    is_noted = bool(lines) and lines[-1].slurm_job == job_id
    job = {"slurm_job": job_id, "slurm_node": os.environ.get("SLURMD_NODENAME", "")}
    own = endings.before_work(lines[-1] if lines else None, segment, why, message, **job)
    next_attempt(this_job, segment, [] if is_noted else [own])
    this_job.tell(f"this job ends before its work and submits no other: {message}")
    if not has_waiting(this_job.run):
        this_job.tell("no job of this run is pending; fix the cause, then start snakemake again")


def leave_to_holder(this_job: DetachedJob, job_id: str) -> None:
    """Another job works on the run, such as another user's: those that wait behind this one wait for its end."""
    try:
        held, reason = current_claim(this_job.places.lease)
    except (LeaseError, OSError):
        return
    if held is None or reason or held.slurm_job in ("", job_id):
        return
    numbers = waiting(my_jobs() or [], this_job.run, Path())
    if not numbers:
        this_job.tell(f"no job of this run is pending behind this one; Slurm job {held.slurm_job} goes on with it")
    elif wait_for(held.slurm_job, numbers):
        this_job.tell(f"job {numbers[0]} waits for the end of Slurm job {held.slurm_job}, which works on this run")
