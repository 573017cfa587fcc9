"""This user's jobs, asked about for all runs of a driver together."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from unbroken.runs.submissions import Submission
from unbroken.slurm.queue import MyJob, my_jobs

# So old may be what the queue says of a run's jobs.
FRESH_SECONDS = 5.0
# A file server's clock and ours may differ by so much.
SKEW_SECONDS = 60.0


class ChainQueue:
    """The last answer of squeue; used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = -float("inf")
        self._jobs: list[MyJob] | None = None

    def jobs(self, newest: Submission | None) -> list[MyJob] | None:
        """Return this user's jobs, asked at most every few seconds; None if Slurm does not answer.

        And asked again where the newest submission of a run may be younger than the last answer.
        """
        with self._lock:
            since = time.monotonic() - self._asked
            if self._jobs is None or since > FRESH_SECONDS or _may_be_younger(newest, self._jobs, since):
                self._asked = time.monotonic()
                self._jobs = my_jobs()
            return self._jobs

    def forget(self) -> None:
        """Let the next question be asked of Slurm."""
        with self._lock:
            self._jobs = None


def _may_be_younger(newest: Submission | None, jobs: Sequence[MyJob], since: float) -> bool:
    """Return True if a submission may have been made after an answer that is so many seconds old."""
    if newest is None or newest.age_seconds > since + SKEW_SECONDS:
        return False
    return all(job.job_id.partition("_")[0] != newest.job_id for job in jobs)
