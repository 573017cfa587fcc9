"""Decide what follows in a run: for a task before its attempt, and for a driver if the run has no job any more.

The job that decides that a run stops notes why, for the tasks that start meanwhile and for the driver.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from unbroken.errors import FormatError, StorageError
from unbroken.job import policy, submissions
from unbroken.job.array import alive_of, is_of
from unbroken.job.end_note import said_by_exit_code
from unbroken.job.policy import Next, NextAction, next_action_now
from unbroken.job.segment_process import is_being_ended
from unbroken.job.spec import ChainJob, JobSpec
from unbroken.slurm.job import LEAVING_SECONDS, EndState, ListedJob
from unbroken.slurm.partitions import own_spare_nodes, spare_nodes
from unbroken.slurm.queue import Queue, ended_job, jobs_by_accounting, my_jobs
from unbroken.store import attempts as endings
from unbroken.store import driver_start
from unbroken.store.driver_start import STATE, state_path
from unbroken.store.history import RECENT, Attempt, EndKind, SegmentEnd
from unbroken.store.layout import LOGS, RunFolder
from unbroken.store.select import obstacle

logger = logging.getLogger(__name__)

# Of more jobs that ended before their work a run has stopped long before.
MOST_ASKED = 5
# How often the queue is asked.
LOOK_SECONDS = 1.0


class Stop(Exception):
    """The run stops here; the text says why and what to type."""


def note_stop(key: str, start: str, why: str) -> None:
    """Write why a run has stopped; a disk that takes no note ends no work."""
    with suppress(OSError, StorageError):
        STATE.update(state_path(key), {"stopped": {"start": start, "why": why}})


def stop_of(key: str, start: str) -> str:
    """Return why the chain has stopped since this start of snakemake; empty if it has not, or nothing says so."""
    match STATE.found(state_path(key)).get("stopped"):
        case {"start": found, "why": str(why)} if found == start:
            return why
    return ""


def wait_until_left(job: ChainJob) -> list[ListedJob] | None:
    """Wait until the task before has left: the next one of an array starts while Slurm still ends it.

    Until then it is unknown how it ended.  One that hangs at its end is not waited for: the lease says whether it
    still works.  Return this user's jobs as squeue showed them last; None if it does not answer.
    """
    jobs = None
    give_up = time.monotonic() + LEAVING_SECONDS
    while time.monotonic() < give_up and not is_being_ended():
        jobs = my_jobs()
        leaving = [other for other in jobs or [] if other.is_leaving and other.job_id != job.job_id]
        if not alive_of(leaving, job.key):
            break
        time.sleep(LOOK_SECONDS)
    return jobs


def next_attempt(
    job: ChainJob, segment: int, lost: Sequence[Attempt] = (), jobs: Sequence[ListedJob] | None = None
) -> int:
    """Count the attempts at a segment from 1; raise Stop if no further one is to be made.

    `lost` are attempts whose line the full disk did not take; `jobs` are this user's, if squeue was asked just now.
    """
    if why := stop_of(job.key, job.now().start):
        raise Stop(why)
    found = unrecorded(job.spec, jobs=jobs)
    attempts, action = _by_policy(job.spec, segment, [*found, *lost], own_spare_nodes)
    if action.stops:
        raise Stop(action.why)
    return 1 + policy.failures_in_a_row(attempts, segment)


def after_last_job(spec: JobSpec, segment: int, last: ListedJob) -> NextAction:
    """Return what follows in a run that has no job any more; `last` was its last one.

    Raise OSError or OutageError while the file server is away.
    """
    run, said = spec.run, said_by_exit_code(last.exit_code)
    if why := stop_of(spec.key, spec.start):
        return NextAction(Next.STOP, why)
    if last.state == EndState.CANCELLED.value:
        return NextAction(Next.STOP, policy.canceled(last.job_id))
    if said is EndKind.HELD:
        return NextAction(Next.WAIT, "another job holds the run")
    if not spec.has_begun:
        is_taken = last.state in policy.TAKEN_AWAY
        return NextAction(Next.RESUME if is_taken else Next.RETRY, f"nothing began in it; log: {spec.submission.logs}")

    def spare() -> int:
        return spare_nodes(run.resources.partition or "", run.resources.nodes or run.resources.tasks)

    try:
        _, action = _by_policy(spec, segment, unrecorded(spec, segment, last), spare)
    except FormatError as error:  # a newer unbroken was installed, and its job has written the history
        return NextAction(Next.STOP, str(error))
    return NextAction(Next.RESUME) if said is EndKind.STOPPED and not action.stops else action


def _by_policy(
    spec: JobSpec, segment: int, lost: Sequence[Attempt], spare_nodes: Callable[[], int]
) -> tuple[list[Attempt], NextAction]:
    """Return the attempts since the start of snakemake, with the `lost` ones that have no line, and what follows."""
    known = [*endings.all_attempts(spec.folder), *lost]
    attempts = endings.with_causes(policy.of_start(known, spec.start))
    rules = policy.Rules(spec.run.attempts_without_progress, spec.retries)
    return attempts, next_action_now(
        spec.folder, attempts, rules, segment=segment, spare_nodes=spare_nodes, log=spec.folder.log(segment)
    )


# --- jobs that are over and left no line in the history: their lines, by what Slurm says of them ---


def unrecorded(
    spec: JobSpec,
    segment: int = 0,
    last: ListedJob | None = None,
    jobs: Sequence[ListedJob] | None = None,
) -> list[Attempt]:
    """Return the lines that cannot be written into the history now either; the others are in it afterwards.

    A job that never started, such as one that was canceled while it waited, has none; nor has one that ended well, or
    before this start of snakemake.  But `last` has one however it ended: no job of the run is left, and no record.
    """
    known = endings.all_attempts(spec.folder)
    recorded = {attempt.slurm_job for attempt in known}
    began = driver_start.began_unix(spec.start)
    shown = my_jobs() if jobs is None else jobs
    over = [job for job in _over(spec.key, shown or [], recorded) if _leaves_line(job)]
    # Both are whole seconds; a job that this start has submitted ends later.
    over = [job for job in over if job.end_unix is None or job.end_unix > began]
    if last is not None and last.job_id not in recorded | {job.job_id for job in over}:
        # One that left because its run had stopped before made no attempt.
        has_tried = said_by_exit_code(last.exit_code) is not EndKind.STOPPED
        over += [last] if has_tried and (last.has_started or last.state == EndState.UNKNOWN) else []
    newest = known[-1] if known else None
    segment = segment or (newest.segment if newest else 1)
    lines = [_line_of(spec.folder, job, segment, newest) for job in over]
    return [line for line in lines if not endings.note(spec.folder, line)]


def last_job(key: str, jobs: Sequence[ListedJob]) -> ListedJob:
    """Return the last job of a chain that has started, of those that are over and squeue shows.

    By accounting where squeue shows none; of an unknown state where that knows none either.
    """
    shown = next((job for job in reversed(jobs) if job.node), jobs[-1] if jobs else None)
    if shown is not None:
        return ended_job(shown.job_id) or ListedJob(shown.job_id, shown.state)
    numbers = submissions.job_ids(key)[-1:]
    over = [job for job in jobs_by_accounting(numbers) if job.has_started and not job.is_alive]
    return over[-1] if over else ListedJob("".join(numbers), EndState.UNKNOWN)


def why_no_job(folder: RunFolder, queue: Queue) -> str:
    """Return why the last job ended that left no line, and what is in the way now, of a run that has no job left.

    Empty if Slurm lists none, or does not answer.
    """
    if any(job.run == folder.name for job in queue.out):
        return ""
    recorded = {attempt.slurm_job for attempt in endings.all_attempts(folder, RECENT)}
    for listed in reversed([job for job in queue.over if job.run == folder.name]):
        job = ended_job(listed.job_id)
        if job is not None and job.has_started:  # else it was canceled while it waited
            is_said = job.job_id in recorded or not _leaves_line(job)
            return "" if is_said else _line_of(folder, job, 1, None).message
    return ""


def _line_of(folder: RunFolder, job: ListedJob, segment: int, newest: Attempt | None) -> Attempt:
    """Return what the history is to say of a job that ended before it could say it itself."""
    where = f" on {job.node}" if job.node else ""
    found = obstacle(folder)
    message = f"Slurm job {job.job_id} ended as {job.state}{where} before its work" + (f"; {found}" if found else "")
    log = LOGS / folder.name / f"slurm-{job.job_id}.log"  # of a user's rule it lies elsewhere
    kind, state = said_by_exit_code(job.exit_code), EndState.of(job.state)
    end = SegmentEnd(kind=kind, message=message, log=str(log) if log.exists() else "", job_state=state)
    return endings.before_work(newest, segment, end, slurm_job=job.job_id, slurm_node=job.node)


def _leaves_line(job: ListedJob) -> bool:
    is_no_attempt = said_by_exit_code(job.exit_code) in (EndKind.STOPPED, EndKind.HELD)
    return job.has_started and job.state != "COMPLETED" and not is_no_attempt


def _over(key: str, jobs: Sequence[ListedJob], recorded: set[str]) -> Iterator[ListedJob]:
    """Yield the jobs of a chain that are over and left no line, oldest first.

    By the controller, which remembers them for some minutes; by accounting if it has forgotten all.
    """
    over = [job.job_id for job in jobs if not job.is_alive and is_of(job, key)]
    if over:
        asked = [job_id for job_id in over if job_id not in recorded][-MOST_ASKED:]
        yield from (job for job_id in asked if (job := ended_job(job_id)) is not None)
    else:
        found = [job for job in jobs_by_accounting(submissions.job_ids(key)[-1:]) if not job.is_alive]
        yield from [job for job in found if job.job_id not in recorded][-MOST_ASKED:]
