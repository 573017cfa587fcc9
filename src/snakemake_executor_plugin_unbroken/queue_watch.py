"""This user's jobs, asked about for all runs of a driver together, and as rarely as may be."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from unbroken.job.submissions import Submission
from unbroken.slurm.job import ListedJob
from unbroken.slurm.queue import my_jobs

# So old may be what the queue says of the jobs of a run that is handed over.
FRESH_SECONDS = 5.0
# A file server's clock and ours may differ by so much.
SKEW_SECONDS = 60.0
# Between two questions while nothing happens.  After a crash in a run of single jobs no time but this is lost.
LONGEST_SECONDS = 60.0
GROWTH_SECONDS = 10.0
# After a sign that a job is gone: it needs a moment to leave.
SOON_SECONDS = 4.0
SILENT_CONTROLLER_SECONDS = 60.0


class QueueWatch:
    """The answers of squeue; used by several threads."""

    def __init__(self, first_seconds: float) -> None:
        self._first_seconds = self._interval = first_seconds
        self._lock = threading.Lock()
        self._asked = -float("inf")
        self._jobs: list[ListedJob] | None = None
        self._due = float("inf")
        self._silent_since: float | None = None

    def jobs(self, newest: Submission | None, *, is_fresh: bool) -> list[ListedJob] | None:
        """Return this user's jobs as squeue shows them; None if Slurm does not answer.

        An answer of the last seconds is enough, but for `is_fresh`, and where a run's newest submission may be younger.
        """
        with self._lock:
            since = time.monotonic() - self._asked
            is_old = is_fresh or self._jobs is None or since > FRESH_SECONDS
            if is_old or _may_be_younger(newest, self._jobs or [], since):
                self._ask()
            return self._jobs

    def expect(self) -> None:
        """Let jobs that are in the queue now be asked for after the first interval."""
        self._due = min(self._due, time.monotonic() + self._first_seconds)

    def hasten(self) -> None:
        """Let squeue be asked soon: a job may be gone."""
        self._interval = self._first_seconds
        self._due = min(self._due, time.monotonic() + SOON_SECONDS)

    def answer(self, log: Callable[[str], None]) -> list[ListedJob] | None:
        """Ask squeue if it is time; None if not, and if it does not answer."""
        if time.monotonic() < self._due:
            return None
        with self._lock:
            jobs = self._ask()
        now = time.monotonic()
        if jobs is not None:
            self._silent_since = None
            self._due = now + self._interval
            self._interval = min(self._interval + GROWTH_SECONDS, LONGEST_SECONDS)
            return jobs
        self._due = now + min(self._interval, 30.0)
        self._silent_since = self._silent_since or now
        if now - self._silent_since > SILENT_CONTROLLER_SECONDS:
            log("squeue does not answer; segments that leave their record go on, the others are waited for")
            self._silent_since = now + 4 * SILENT_CONTROLLER_SECONDS
        return None

    def _ask(self) -> list[ListedJob] | None:
        self._asked = time.monotonic()
        self._jobs = my_jobs()
        return self._jobs


def _may_be_younger(newest: Submission | None, jobs: Sequence[ListedJob], since: float) -> bool:
    """Return True if a submission may have been made after an answer that is so many seconds old."""
    if newest is None or newest.age_seconds > since + SKEW_SECONDS:
        return False
    return all(job.array != newest.job_id for job in jobs)
