"""The time of a job: how long it waits for its run, how long it may work, and how Slurm moves that meanwhile."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from unbroken.program.contract import AttemptFolder
from unbroken.runs import lease
from unbroken.runs.claim import Claim
from unbroken.runs.history import Attempt
from unbroken.segment.deadline import (
    MOVED_SECONDS,
    NEARLY_ALL,
    NO_LIMIT_MINUTES,
    Deadline,
    Margin,
    deadline_for,
    learn_margin,
)
from unbroken.segment.job import Job
from unbroken.segment.job_note import FILE
from unbroken.slurm.this_job import SlurmJob, job_around_us, own_job_id

# An owner that works to its own end needs its length and a little more; one that cannot be seen, its silence.
WAITING_SECONDS = lease.STALE_SECONDS + 60.0
# How often a job asks when it will be ended: six questions an hour, and one shortly before it would stop.
LOOK_SECONDS = 600.0
LAST_LOOK_SECONDS = 15.0
# A margin that changes by less is not worth a line in the log.
TOLD_SECONDS = 1.0


def patience_seconds(job: Job) -> float:
    """Return how long a segment waits for the one before it, which may be a longer one of an earlier config."""
    return 1.5 * job.run.segment_minutes * 60 + WAITING_SECONDS


def leaves_to(job: Job, owner: Claim, environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if a job of Slurm leaves its node while that owner works, because the segment is started after it.

    The queue can wait only for the end of an owner that is another job; one whose record is there is just
    leaving, and the few seconds of that need no queue.
    """
    own = own_job_id(environment)
    is_other_job = own != "" and owner.slurm_job not in ("", own)
    return is_other_job and FILE in environment and not job.places.record(owner.segment).exists()


@dataclass
class JobTime:
    """Track when the job must end, and when its program must be asked to stop; `slurm_job` is None outside of Slurm."""

    job: Job
    attempt_folder: AttemptFolder
    slurm_job: SlurmJob | None
    deadline: Deadline
    margin: Margin
    written_unix: float = 0.0  # what the program reads in its folder
    _next_look: float = field(default_factory=lambda: time.monotonic() + LOOK_SECONDS)
    _has_looked_last: bool = False
    _suspended_seconds: float = 0.0

    def stops_within(self, seconds: float = 0.0) -> bool:
        """Return True if the program must be asked to stop now, or in so many seconds."""
        return self.deadline.left_seconds() <= self.margin.stop_seconds + seconds

    def write_deadline(self) -> float:
        """Write for the program by when it must be out, by this node's clock, which is the one that it has."""
        self.written_unix = self._unix()
        self.attempt_folder.write_deadline(self.written_unix)
        return self.written_unix

    def learn_from_save(self, writing_seconds: float | None, publishing_seconds: float) -> None:
        """Fit the margin to a save in the middle of the segment, which shows what the one at its end will take."""
        before, self.margin = self.margin, self.margin.after_save(writing_seconds, publishing_seconds)
        if self.margin.publish_seconds > before.publish_seconds:
            self.write_deadline()
        if abs(self.margin.stop_seconds - before.stop_seconds) >= TOLD_SECONDS:
            self.job.tell(f"by what a save takes: told to stop {self.margin.stop_seconds:.1f} s before the end")

    def watch(self, suspended_seconds: float) -> None:
        """Follow now and then an administrator who gives the job more time, or takes some."""
        now = time.monotonic()
        if suspended_seconds > self._suspended_seconds:  # a job that was suspended has another end
            self._next_look, self._suspended_seconds = 0.0, suspended_seconds
        is_nearly_over = self.stops_within(LAST_LOOK_SECONDS)
        if now < self._next_look and (self._has_looked_last or not is_nearly_over):
            return
        self._has_looked_last = is_nearly_over
        self._next_look = now + LOOK_SECONDS
        self.follow_slurm()
        if abs(self._unix() - self.written_unix) >= MOVED_SECONDS:  # this node's clock was set
            self.write_deadline()

    def follow_slurm(self) -> None:
        """Ask Slurm when it ends the job, and move the deadline if that has changed."""
        asked = self.slurm_job.asked() if self.slurm_job else None
        moved = self.deadline.moved(self._end_here(asked)) if asked and asked.end_unix else self.deadline
        if moved is self.deadline:
            return
        self.slurm_job = asked
        before, self.deadline, self._has_looked_last = self.deadline, moved, False
        difference = moved.forced - before.forced
        change = f"{abs(difference):.0f} s {'later' if difference > 0 else 'sooner'}"
        self.job.tell(f"Slurm ends the job {change} than it said; {moved.left_seconds():.0f} s are left")
        self.write_deadline()

    def _end_here(self, asked: SlurmJob) -> float:
        """Return the end by this node's clock, which may have been set meanwhile: Slurm's two ends are compared."""
        known = self.slurm_job.end_unix if self.slurm_job else None
        if known is None or asked.end_unix is None:
            return asked.timed().end_here_unix or math.inf
        return time.time() + self.deadline.seconds_to_force() + asked.end_unix - known

    def _unix(self) -> float:
        return self.deadline.unix(self.margin.publish_seconds)


def job_time(job: Job, attempts: Sequence[Attempt], attempt_folder: AttemptFolder) -> JobTime:
    """Return the time from now, or as Slurm counts it, and log what is unusual; the margin comes from the attempts."""
    seconds = job.run.segment_minutes * 60
    slurm_job = job_around_us()
    if slurm_job is not None and slurm_job.end_unix is None:
        alone = f"counting on {job.run.segment_minutes:g} minutes alone"
        job.tell(f"Slurm does not say when it ends job {slurm_job.job_id}: {alone}")
    if slurm_job is not None and slurm_job.remark:
        job.tell(slurm_job.remark)
    deadline = deadline_for(seconds, slurm_job)
    left_seconds = deadline.left_seconds()
    first, stall = job.run.first_margin_seconds, job.run.stall_minutes
    margin = learn_margin(attempts, min(seconds, left_seconds), first)
    if job.run.least_minutes is not None and left_seconds < NEARLY_ALL * seconds:
        job.tell(f"Slurm gives this job {left_seconds / 60:.3g} of {job.run.segment_minutes:g} minutes")
    if first is not None and first > margin.longest_seconds + 1:
        half = f"half of this segment's {2 * margin.longest_seconds:.0f} s counts"
        job.tell(f"first_margin_seconds: found {first:g}; {half}; for more set a longer segment_minutes")
    if stall is not None and stall * 60 >= left_seconds:
        never = f"this segment ends in {left_seconds / 60:.3g} minutes, before a stall could be seen"
        job.tell(f"stall_minutes: found {stall:g}; {never}; set a smaller one")
    if left_seconds < NO_LIMIT_MINUTES * 60 - margin.longest_seconds:
        job.tell(f"time: {left_seconds:.0f} s, told to stop {margin.stop_seconds:.1f} s before the end")
    return JobTime(job, attempt_folder, slurm_job, deadline, margin)
