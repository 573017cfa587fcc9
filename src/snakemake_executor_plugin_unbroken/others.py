"""Runs that somebody works on whose jobs are not in this user's queue: another user, or a job on another cluster.

Nothing is submitted for such a run, since its job would only find it held: the segment waits for the end of that job.
"""

from __future__ import annotations

import getpass
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.errors import FormatError, LeaseError
from unbroken.runs.claim import Claim, claim_path
from unbroken.runs.holder import HolderWatch
from unbroken.runs.lease import HEARTBEAT_SECONDS, current_claim
from unbroken.runs.submissions import Submission
from unbroken.slurm.queue import job_of_anyone

# Between two looks at a job of another user that still waits; each asks the controller.
WAITING_SECONDS = 60.0


@dataclass(frozen=True)
class Other:
    """Why nothing is submitted now; `job_id` is empty where the holder is no job of Slurm's."""

    job_id: str
    wait_seconds: float
    line: str  # empty if it was told before


class Others:
    """Who else works on the runs of this driver."""

    def __init__(self) -> None:
        self._watches: dict[str, HolderWatch] = {}
        self._held: set[str] = set()
        self._told: set[str] = set()

    def found_held(self, segment: Segment) -> None:
        """A job of ours has left because somebody works on the run, whoever that is."""
        self._held.add(segment.run.name)

    def look(self, segment: Segment, newest: Submission | None) -> Other | None:
        """Who works on the run, or is out for the segment; None if nobody does, as far as one can know."""
        with suppress(LeaseError, FormatError, OSError):  # a job finds out, and says it
            held, reason = current_claim(segment.places.lease)
            if held is not None and not reason and self._is_at_work(segment, held):
                line = f"{segment.name}: {held.user} works on this run, {held.describe()}"
                return self._other(segment, held.slurm_job, HEARTBEAT_SECONDS, line)
        self._held.discard(segment.run.name)
        self._watches.pop(segment.run.name, None)
        if newest is not None and newest.job_id and newest.is_of_another_user:
            job = job_of_anyone(newest.job_id)
            if job is not None and job.is_alive and job.folder.resolve() == Path().resolve():
                line = f"{segment.name}: {job.user}'s job {job.job_id} is out for it"
                return self._other(segment, job.job_id, WAITING_SECONDS, line)
        return None

    def _is_at_work(self, segment: Segment, held: Claim) -> bool:
        """False once it is known to be gone; jobs of this user are in the queue, or found held."""
        run = segment.run.name
        if held.user == getpass.getuser() and run not in self._held:
            return False
        watch = self._watches.setdefault(run, HolderWatch(HEARTBEAT_SECONDS))
        return not watch.why_free(claim_path(segment.places.lease, held.token), held)

    def _other(self, segment: Segment, job_id: str, seconds: float, line: str) -> Other:
        line += "; the segment waits for its end"
        is_new = line not in self._told
        self._told.add(line)
        return Other(job_id, seconds, line if is_new else "")
