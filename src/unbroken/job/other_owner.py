"""Find the owner of a run's lease: a job of this user, or one that is not in this user's queue.

The second kind belongs to another user, runs on a machine without Slurm, ...
"""

from __future__ import annotations

import getpass
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import FormatError, LeaseError
from unbroken.job.spec import JobSpec
from unbroken.job.submissions import Submission
from unbroken.runs.claim import Claim, HolderWatch, claim_path
from unbroken.runs.layout import RunFolder
from unbroken.runs.lease import HEARTBEAT_SECONDS, current_claim
from unbroken.slurm.client import may_ask_here
from unbroken.slurm.queue import job_of_anyone


@dataclass(frozen=True)
class Other:
    """Hold what works on a run, or is in the queue for it; `job_id` is its job or array, empty without one in Slurm.

    The run's own tasks wait in the queue for the end of that job; without one a driver waits.
    """

    job_id: str
    line: str


class OtherOwner:
    """Look for others that work on a run."""

    def __init__(self) -> None:
        self._watch = HolderWatch(HEARTBEAT_SECONDS)
        self.was_met = False  # a job of this user has left because another one works on the run

    def find(self, spec: JobSpec, newest: Submission | None) -> Other | None:
        """Return what works on the run; None if nothing does, as far as can be known."""
        owner = owner_of(spec.folder)
        if owner is not None and self._works(spec, owner):
            number = owner.slurm_job.partition("_")[0] if may_ask_here(owner.slurm_cluster) else ""
            return Other(number, f"{owner.user} works on this run, {owner.describe()}")
        self.was_met = False
        return job_in_queue(newest)

    def _works(self, spec: JobSpec, owner: Claim) -> bool:
        """Return False once it is known to be gone; jobs of this user are in the queue, or were met."""
        if owner.user == getpass.getuser() and not self.was_met:
            return False
        return not self._watch.why_free(claim_path(spec.folder.lease, owner.token), owner)


def owner_of(folder: RunFolder) -> Claim | None:
    """Return the owner of the run; None also where its lease cannot be read: a job finds out, and reports it."""
    with suppress(LeaseError, FormatError, OSError):
        owner, why_free = current_claim(folder.lease)
        return None if why_free else owner
    return None


def job_in_queue(newest: Submission | None) -> Other | None:
    """Return another user's job of this folder that is in the queue, by the newest submission of a run."""
    if newest is None or not newest.job_id or not newest.is_of_another_user:
        return None
    job = job_of_anyone(newest.job_id)
    if job is None or not job.is_alive or job.folder.resolve() != Path().resolve():
        return None
    return Other(newest.job_id, f"{job.user}'s job {newest.job_id} is out for it")
