"""Jobs of a run that are over and left no line in its history: their lines, by what Slurm says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from unbroken.job.array import is_of
from unbroken.job.spec import JobSpec
from unbroken.runs import attempts, driver_start, submissions
from unbroken.runs.history import RECENT, Attempt
from unbroken.runs.job_note import said_by_exit_code
from unbroken.runs.layout import LOGS, RunFolder
from unbroken.runs.obstacles import obstacle
from unbroken.runs.segment_end import EndKind, SegmentEnd
from unbroken.slurm.ended_job import EndedJob, ended_in_accounting, ended_job
from unbroken.slurm.job_end import EndState
from unbroken.slurm.jobs_out import Queue
from unbroken.slurm.queue import MyJob, my_jobs

# Of more jobs that ended before their work a run has stopped long before.
MOST_ASKED = 5


def unrecorded(
    spec: JobSpec, log: Callable[[str], None], segment: int = 0, last: EndedJob | None = None
) -> list[Attempt]:
    """Return the lines that cannot be written into the history now either; the others are in it afterwards.

    A job that never started, such as one that was canceled while it waited, has none; nor has one that ended well, or
    before this start of snakemake.  But `last` has one however it ended: no job of the run is left, and no record.
    """
    known = attempts.all_attempts(spec.folder)
    recorded = {attempt.slurm_job for attempt in known}
    began = driver_start.began_unix(spec.start)
    over = [job for job in _over(spec.key, my_jobs() or [], recorded) if _leaves_line(job)]
    over = [job for job in over if job.end_unix is None or job.end_unix >= began]
    if last is not None and last.job_id not in recorded | {job.job_id for job in over}:
        # One that left because its run had stopped before made no attempt.
        has_tried = said_by_exit_code(last.exit_code) is not EndKind.STOPPED
        over += [last] if has_tried and (last.has_started or last.state == EndState.UNKNOWN) else []
    newest = known[-1] if known else None
    segment = segment or (newest.segment if newest else 1)
    lines = [_line_of(spec.folder, job, segment, newest) for job in over]
    return [line for line in lines if not attempts.note(spec.folder, line, log)]


def last_job(key: str, jobs: Sequence[MyJob]) -> EndedJob:
    """Return the last job of a chain that has started, of those that are over and squeue shows.

    By accounting where squeue shows none; of an unknown state where that knows none either.
    """
    shown = next((job for job in reversed(jobs) if job.node), jobs[-1] if jobs else None)
    if shown is not None:
        return ended_job(shown.job_id) or EndedJob(shown.job_id, shown.state, "", 0)
    numbers = submissions.job_ids(key)[-1:]
    over = [job for job in ended_in_accounting(numbers) if job.has_started]
    return over[-1] if over else EndedJob("".join(numbers), EndState.UNKNOWN, "", 0)


def why_no_job(folder: RunFolder, queue: Queue) -> str:
    """Return why the last job ended that left no line, and what is in the way now, of a run that has no job left.

    Empty if Slurm lists none, or does not answer.
    """
    if any(job.run == folder.name for job in queue.out):
        return ""
    recorded = {attempt.slurm_job for attempt in attempts.all_attempts(folder, RECENT)}
    for listed in reversed([job for job in queue.over if job.run == folder.name]):
        job = ended_job(listed.job_id)
        if job is not None and job.has_started:  # else it was canceled while it waited
            is_said = job.job_id in recorded or not _leaves_line(job)
            return "" if is_said else _line_of(folder, job, 1, None).message
    return ""


def _line_of(folder: RunFolder, job: EndedJob, segment: int, newest: Attempt | None) -> Attempt:
    """Return what the history is to say of a job that ended before it could say it itself."""
    where = f" on {job.node}" if job.node else ""
    found = obstacle(folder)
    message = f"Slurm job {job.job_id} ended as {job.state}{where} before its work" + (f"; {found}" if found else "")
    log = LOGS / folder.name / f"slurm-{job.job_id}.log"  # of a user's rule it lies elsewhere
    kind, state = said_by_exit_code(job.exit_code), EndState.of(job.state)
    end = SegmentEnd(kind=kind, message=message, log=str(log) if log.exists() else "", job_state=state)
    return attempts.before_work(newest, segment, end, slurm_job=job.job_id, slurm_node=job.node)


def _leaves_line(job: EndedJob) -> bool:
    is_no_attempt = said_by_exit_code(job.exit_code) in (EndKind.STOPPED, EndKind.HELD)
    return job.has_started and job.state != "COMPLETED" and not is_no_attempt


def _over(key: str, jobs: Sequence[MyJob], recorded: set[str]) -> Iterator[EndedJob]:
    """Yield the jobs of a chain that are over and left no line, oldest first.

    By the controller, which remembers them for some minutes; by accounting if it has forgotten all.
    """
    over = [job.job_id for job in jobs if not job.is_alive and is_of(job, key)]
    if over:
        asked = [job_id for job_id in over if job_id not in recorded][-MOST_ASKED:]
        yield from (job for job_id in asked if (job := ended_job(job_id)) is not None)
    else:
        found = ended_in_accounting(submissions.job_ids(key)[-1:])
        yield from [job for job in found if job.job_id not in recorded][-MOST_ASKED:]
