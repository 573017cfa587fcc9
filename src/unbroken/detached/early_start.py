"""A job that starts while the one before is at work, so that its wait in the queue runs beside the work.

Jobs that wait for the end of another do not age in the queue; one that waits for a time after another's start ages from
then on [measured, Slurm 22.05, multifactor priority].  Such a job asks the one at work, through the lease, to save and
leave, and begins when it has: there are never two writers, and two allocations for as long as a save takes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence

from unbroken.detached.segment_command import is_being_ended
from unbroken.errors import LeaseError, StorageError
from unbroken.runs.claim import claim_path, request_path
from unbroken.runs.holder import HolderWatch
from unbroken.runs.layout import RunFolder
from unbroken.runs.lease import HEARTBEAT_SECONDS, current_claim
from unbroken.runs.run import Run
from unbroken.slurm.queue import my_jobs
from unbroken.system import fs
from unbroken.system.clock import utc_now

# The one at work and the next one: a job behind that would wait for the start of one that waits itself.
JOBS = 2
# One that was asked and does not leave for so long cannot: then this job leaves, as from any run that is held.
PATIENCE_SECONDS = 900.0
LOOK_SECONDS = 0.5
# How long a job that Slurm ends may take to leave (KillWait), and how often the queue is asked.
LEAVING_SECONDS = 300.0
QUEUE_LOOK_SECONDS = 1.0


def early_minutes(run: Run) -> int | None:
    """After how many minutes of a job the next one may start; None if only after its end."""
    if not run.queue_wait_minutes:
        return None
    return max(1, int(run.segment_minutes - run.queue_wait_minutes))


def dependency(chain: Sequence[str], minutes: int | None) -> list[str]:
    """The words for sbatch that put a job behind all others of its run; with `minutes` as above, behind the last."""
    if not chain:
        return []
    if minutes is None:
        # After all of them: if one that waits is cancelled, the next must not start beside the one that runs.
        return [f"--dependency=afterany:{':'.join(chain)}"]
    return [f"--dependency=afterany:{chain[-1]}?after:{chain[-1]}+{minutes}"]


def ask_to_leave(places: RunFolder, before: Collection[str], job_id: str, tell: Callable[[str], None]) -> None:
    """Asks the job at work, if it is one of those `before` this one, to save and leave, and waits until it has.

    Not for ever, not where it is dead or the disk takes no request: then this job finds the run free, or held, as ever.
    """
    watch, give_up, asked = HolderWatch(HEARTBEAT_SECONDS), time.monotonic() + PATIENCE_SECONDS, 0
    while time.monotonic() < give_up and not is_being_ended():
        try:
            held, why_free = current_claim(places.lease)
        except (LeaseError, OSError):
            return
        if held is None or why_free or held.slurm_job not in before:
            return
        if watch.why_free(claim_path(places.lease, held.token), held):
            return
        if asked != held.token:
            asked = held.token
            tell(f"Slurm job {held.slurm_job} is at work: it is asked to save and leave (queue_wait_minutes)")
            text = json.dumps({"slurm_job": job_id, "asked_utc": utc_now()}) + "\n"
            try:
                fs.create_exclusive(request_path(places.lease, held.token), text)
            except StorageError as error:
                return tell(f"it cannot be asked: {error}")
        time.sleep(LOOK_SECONDS)


def wait_until_left(tasks: Sequence[str]) -> None:
    """Of an array the next task starts while Slurm still ends the one before, so nobody can say yet how that ended.

    A job that depends on another one starts when that has left.
    """
    give_up = time.monotonic() + LEAVING_SECONDS
    while tasks and time.monotonic() < give_up and not is_being_ended():
        if not any(job.is_leaving and job.job_id in tasks for job in my_jobs() or []):
            return
        time.sleep(QUEUE_LOOK_SECONDS)
