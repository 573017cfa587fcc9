"""A job that leaves without work of its own: refused, something is missing, or another job works on the run."""

from __future__ import annotations

import os

from unbroken.errors import LeaseError
from unbroken.job.array import has_waiting, waiting
from unbroken.job.chain_job import ChainJob
from unbroken.job.next_attempt import next_attempt
from unbroken.job.waiting_tasks import change_tasks
from unbroken.runs import attempts as endings
from unbroken.runs.history import History
from unbroken.runs.lease import current_claim
from unbroken.runs.segment_end import SegmentEnd
from unbroken.slurm.queue import my_jobs


def leave_before_work(job: ChainJob, end: SegmentEnd) -> None:
    """Submit nothing and go back into no queue: the same would only happen again, there, in a minute."""
    segment = job.now().next_segment() or job.now().last_segment
    lines = History(job.folder.history).attempts()
    is_noted = bool(lines) and lines[-1].slurm_job == job.job_id
    words = {"slurm_job": job.job_id, "slurm_node": os.environ.get("SLURMD_NODENAME", "")}
    own = endings.before_work(lines[-1] if lines else None, segment, end, **words)
    next_attempt(job, segment, [] if is_noted else [own])
    job.log(f"this job ends before its work and submits no other: {end.line()}")
    if not has_waiting(job.key):
        job.log("no task of this run waits; fix the cause, then start snakemake again")


def leave_to_owner(job: ChainJob) -> None:
    """Let the tasks that wait behind this one wait for the end of the job that works on the run, whoever's it is."""
    try:
        owner, why_free = current_claim(job.folder.lease)
    except (LeaseError, OSError):
        return
    if owner is None or why_free or owner.slurm_job in ("", job.job_id):
        return
    numbers = waiting(my_jobs() or [], job.key)
    if not numbers:
        job.log(f"no task of this run waits behind this one; Slurm job {owner.slurm_job} goes on with it")
    elif change_tasks(numbers, f"Dependency=afterany:{owner.slurm_job}"):
        job.log(f"the waiting tasks wait for the end of Slurm job {owner.slurm_job}, which works on this run")
