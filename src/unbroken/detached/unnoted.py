"""Jobs of a run that are over and left no line in its history: their lines, by what Slurm says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from unbroken.runs import attempts
from unbroken.runs.history import RECENT, Attempt
from unbroken.runs.job_note import BeforeWork, said_by_exit_code
from unbroken.runs.layout import RunFolder
from unbroken.runs.obstacles import obstacle
from unbroken.slurm.ended_job import EndedJob, ended_job
from unbroken.slurm.jobs_out import Queue


def unnoted(places: RunFolder, job_ids: Iterable[str], tell: Callable[[str], None], segment: int = 0) -> list[Attempt]:
    """The lines that could not be written into the history now either; the others are in it afterwards.

    A job that never started, as one that was cancelled while it waited, has none; nor has one that ended well.
    """
    return list(_lost(places, job_ids, tell, segment))


def is_held(job: EndedJob) -> bool:
    """True for a job that left because another one does the run's work."""
    return said_by_exit_code(job.exit_code) is BeforeWork.HELD


def line_of(places: RunFolder, job: EndedJob, segment: int, last: Attempt | None) -> Attempt:
    """What the history is to say of a job that ended before it could say it itself."""
    why = said_by_exit_code(job.exit_code)
    where = f" on {job.node}" if job.node else ""
    found = obstacle(places)
    message = f"Slurm job {job.job_id} ended as {job.state}{where} before its work" + (f"; {found}" if found else "")
    fields = {"slurm_job": job.job_id, "slurm_node": job.node, "cause": job.state}
    return attempts.before_work(last, segment, why, message, **fields)


def why_no_job(places: RunFolder, queue: Queue) -> str:
    """For a run that has no job out, why the last one of it ended that left no line, and what is in the way now.

    Empty if Slurm lists none, or does not answer.
    """
    if any(job.run == places.name for job in queue.out):
        return ""
    noted = {attempt.slurm_job for attempt in attempts.all_attempts(places, RECENT)}
    for listed in reversed([job for job in queue.over if job.run == places.name]):
        job = ended_job(listed.job_id)
        if job is None or not job.has_started:  # one that was cancelled while it waited
            continue
        is_told = job.job_id in noted or job.state == "COMPLETED" or is_held(job)
        return "" if is_told else line_of(places, job, 1, None).message
    return ""


def _lost(places: RunFolder, job_ids: Iterable[str], tell: Callable[[str], None], segment: int) -> Iterator[Attempt]:
    known = attempts.all_attempts(places)
    noted = {attempt.slurm_job for attempt in known}
    for job_id in job_ids:
        job = ended_job(job_id) if job_id not in noted else None
        if job is None or not job.has_started or job.state == "COMPLETED" or is_held(job):
            continue
        line = line_of(places, job, segment or (known[-1].segment if known else 1), known[-1] if known else None)
        if not attempts.note(places, line, tell):
            yield line
