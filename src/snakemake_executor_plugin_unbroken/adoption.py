"""Which job of an earlier, or another, driver is out for a segment already."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from snakemake_executor_plugin_unbroken.heartbeat import claimed_by
from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.detached.pending_jobs import is_detached_job_of, submits_the_next
from unbroken.runs import submissions
from unbroken.runs.submissions import Submission
from unbroken.slurm.queue import MyJob, my_jobs

# What the queue says of a job that is to be taken over must not be older.
FRESH_SECONDS = 20.0
# A file server's clock and ours may differ by so much.
SKEW_SECONDS = 60.0
# A job that is ending leaves the run within seconds; one whose machine is lost seems alive for longer.
LEAVING_SECONDS = 150.0
LOOK_SECONDS = 3.0


@dataclass(frozen=True)
class AdoptedJob:
    """A job to take over, or the need to wait before anything can be said, or neither: submit."""

    job_id: str = ""
    ticket: Submission | None = None
    wait_seconds: float = 0.0
    line: str = ""
    submits_the_next: bool = False

    @property
    def must_wait(self) -> bool:
        return self.wait_seconds > 0


class Adoption:
    """What was in the queue; asked once at the driver's start, and again only when there is something to take over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._lock = threading.Lock()
        self._jobs: list[MyJob] | None = None
        self._asked = -float("inf")
        self._ended: set[str] = set()
        self._has_told = False
        self._leaving: dict[str, float] = {}

    def forget(self) -> None:
        """The next `find` asks again."""
        with self._lock:
            self._jobs = None

    def mark_ended(self, job_id: str) -> None:
        """This job is not to be taken over any more."""
        self._ended.add(job_id)

    def find(self, segment: Segment, known: Collection[str], taken: Collection[str | None]) -> AdoptedJob:
        """The job that is out for a segment.

        `known` are the numbers that Snakemake has kept for it, `taken` those that this driver looks after for others.
        """
        ticket = submissions.newest(segment.key)
        if ticket is not None and ticket.is_being_filled:
            return AdoptedJob(ticket=ticket, wait_seconds=1.0)
        with self._lock:
            if self._jobs is None or (ticket is not None and self._may_be_newer(ticket)):
                self._ask()
            if self._jobs is not None and self._match(segment, ticket, known, taken) and not self._is_fresh():
                self._ask()
            if self._jobs is None:
                line = "" if self._has_told else "squeue does not answer; nothing is submitted until it does"
                self._has_told = True
                return AdoptedJob(ticket=ticket, wait_seconds=15.0, line=line)
            self._has_told = False
            job = self._match(segment, ticket, known, taken)
            if job is not None and job.is_leaving:
                return self._wait_for(job, segment, ticket)
            if job is None:
                return AdoptedJob(ticket=ticket)
            return AdoptedJob(job.job_id, ticket, submits_the_next=submits_the_next(job))

    def _wait_for(self, job: MyJob, segment: Segment, ticket: Submission | None) -> AdoptedJob:
        """A job that is ending is no longer one to take over: the end that it comes to was ordered before."""
        is_new = job.job_id not in self._leaving
        if time.monotonic() - self._leaving.setdefault(job.job_id, time.monotonic()) > LEAVING_SECONDS:
            self._ended.add(job.job_id)
        self._jobs = None  # the next look asks again
        line = f"{segment.name}: job {job.job_id} is ending; the segment goes on as soon as it has left"
        return AdoptedJob(ticket=ticket, wait_seconds=LOOK_SECONDS, line=line if is_new else "")

    def _ask(self) -> None:
        # The answer is as old as the question.
        self._asked = time.monotonic()
        self._jobs = my_jobs()

    def _may_be_newer(self, ticket: Submission) -> bool:
        """True if the ticket's job may have been submitted after the last question."""
        since = time.monotonic() - self._asked
        is_known = any(job.job_id == ticket.job_id for job in self._jobs or [])
        return ticket.age_seconds < since or (not is_known and ticket.age_seconds < since + SKEW_SECONDS)

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._asked < FRESH_SECONDS

    def _match(
        self, segment: Segment, ticket: Submission | None, known: Collection[str], taken: Collection[str | None]
    ) -> MyJob | None:
        ids = {*known, claimed_by(segment.places.lease)} | ({ticket.job_id} if ticket else set())
        for job in self._jobs or []:
            is_free = job.is_alive and job.job_id not in self._ended and job.job_id not in taken
            is_known = job.job_id in ids and self._may_be_of(job, segment)
            is_its = is_known or self._is_named(job, segment) or self._is_detached_job(job, segment)
            if is_free and is_its:
                return job
        return None

    def _may_be_of(self, job: MyJob, segment: Segment) -> bool:
        """False for a job of something else, which a controller that lost its state has given a known number again."""
        return job.folder.resolve() == self._folder and segment.may_be(job.comment)

    def _is_detached_job(self, job: MyJob, segment: Segment) -> bool:
        """Jobs without a driver do the segments of their run in order, whatever their comments say."""
        return is_detached_job_of(job, segment.run.name, self._folder)

    def _is_named(self, job: MyJob, segment: Segment) -> bool:
        """The parent's comment and the folder name a segment."""
        return segment.is_named_by(job.comment) and job.folder.resolve() == self._folder
