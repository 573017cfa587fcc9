"""With a driver: the job after the one that is out, of runs with `queue_wait_minutes`.

It is in the queue before Snakemake hands its segment over, so that its wait runs beside the work.  It does the first
segment that has no record: also the one before, when the job for that has died.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.detached import successors
from unbroken.detached.pending_jobs import DRIVEN_JOB_NAME, is_detached_job_of
from unbroken.detached.successors import Template
from unbroken.runs import submissions
from unbroken.runs.submissions import Key
from unbroken.slurm.commands import ask
from unbroken.slurm.queue import my_jobs


class EarlyJobs:
    """The jobs that this driver has submitted, or found, ahead of Snakemake; called from threads."""

    def __init__(self) -> None:
        self._templates: dict[str, Template] = {}
        self._last: dict[str, int] = {}
        self._waiting: dict[str, str] = {}
        self._lock = threading.Lock()

    def keep(self, run: str, template: Template, last_segment: int) -> None:
        """How the jobs of a run are submitted, up to the last segment that is wanted."""
        self._templates[run], self._last[run] = template.named(DRIVEN_JOB_NAME), last_segment

    def follow(self, segment: Segment, job_id: str, tell: Callable[[str], None]) -> bool:
        """Puts the next segment's job behind the one of this segment, unless one is there; True if it is now."""
        template = self._templates.get(segment.run.name)
        key = Key(segment.run.name, segment.number + 1)
        with self._lock:
            self._waiting.pop(key.run, None)
            if template is None or key.number > self._last[key.run]:
                return False
            if submissions.newest(key) is None:
                job, said = successors.submit_behind(key, template, job_id)
            else:  # of a driver before this one, or of this run's last try
                job, said = self._found_or_submitted(key, template, job_id)
            if job:
                self._waiting[key.run] = job
        if said:
            tell(f"{segment.name}: no job waits behind job {job_id} yet ({said})")
        return bool(job)

    def is_waiting(self, run: str, job_id: str) -> bool:
        """True for the job that was submitted ahead."""
        return self._waiting.get(run) == job_id

    def cancel(self, runs: Iterable[str] | None = None, only_pending: bool = True) -> None:
        """Takes those of these runs, or of all, out of the queue; one that has started meanwhile is somebody's work."""
        with self._lock:
            names = list(self._waiting) if runs is None else [run for run in runs if run in self._waiting]
            numbers = [self._waiting.pop(run) for run in names]
        if numbers:
            ask("scancel", *(["--state=PENDING"] if only_pending else []), *numbers)

    def _found_or_submitted(self, key: Key, template: Template, job_id: str) -> tuple[str, str]:
        # Before Slurm is asked, as wherever somebody submits.
        found = submissions.newest(key)
        if found is not None and found.is_being_filled:
            return "", "somebody else submits it just now"
        jobs = my_jobs()
        if jobs is None:
            return "", "squeue does not answer"
        others = [job for job in jobs if job.is_alive and job.job_id != job_id]
        behind = [job for job in others if is_detached_job_of(job, key.run, Path())]
        if not behind:
            return successors.submit_behind(key, template, job_id, found)
        # The jobs of a detached chain look after themselves.
        return next((job.job_id for job in behind if job.name.startswith(DRIVEN_JOB_NAME)), ""), ""
