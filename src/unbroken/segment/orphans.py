"""Processes of an earlier attempt that outlived it on this machine.

Only where all were killed at once that would have ended them (`guard`), outside of a job of Slurm, which ends its own.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable

from unbroken.program.guard import MARK, marked
from unbroken.runs.claim import Claim
from unbroken.runs.holder import Life, life_of
from unbroken.segment.job import Job
from unbroken.slurm.job_end import ended
from unbroken.system.clock import unix_seconds
from unbroken.system.host import boot_id

# How long the guards of an attempt that has just died may take.
LEAVING_SECONDS = 5.0
LOOK_SECONDS = 0.1


def name_orphans(job: Job, claims: Iterable[Claim]) -> None:
    """Says in one line for each attempt which of its processes are still there, and what to type; ends none of them.

    They are known by the folder to save in, which stands in their environment and is of one attempt alone.
    """
    for claim in claims:
        if claim.host == platform.node() and (pids := _left_by(job, claim.token)):
            numbers = " ".join(map(str, pids))
            job.tell(
                f"processes of {claim.describe()} are still there; if they shall not be, type kill -KILL {numbers}"
            )


def is_program_gone(job: Job, token: int, claim: Claim | None) -> bool:
    """Return True if no process of an earlier attempt can write any more, by what this machine or Slurm shows.

    An attempt whose claim is forgotten has ended by itself.
    """
    if claim is None or claim.released_utc:
        return not _left_by(job, token)
    is_here = claim.host == platform.node()
    if is_here and claim.boot_id != boot_id():
        return True
    if life_of(claim) is Life.GONE:
        return not _left_by(job, claim.token)
    found = ended(claim.slurm_job, unix_seconds(claim.started_utc), claim.slurm_cluster) if claim.slurm_job else None
    return found is not None and found.is_certain


def _left_by(job: Job, token: int) -> list[int]:
    save = (job.places.work / f"{token:06d}" / "save").resolve()
    give_up = time.monotonic() + LEAVING_SECONDS
    while True:
        pids = sorted(pid for pid, _ in marked(f"{MARK}={save}"))
        if not pids or time.monotonic() > give_up:
            return pids
        time.sleep(LOOK_SECONDS)
