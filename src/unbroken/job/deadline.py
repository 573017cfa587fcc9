"""The time of a segment: how long it waits for its run, when it must end, and how long before it is asked to stop.

On a clock that cannot jump.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from unbroken.job.attempt import JOB_NOTE, Job
from unbroken.program.contract import AttemptFolder
from unbroken.slurm.this_job import SlurmJob, job_around_us, own_job_id
from unbroken.store import lease
from unbroken.store.claim import Claim
from unbroken.store.history import Attempt

logger = logging.getLogger(__name__)

# What a stop took is learned from the last few attempts: enough to see a slow file server, few enough to forget one.
LEARNED_ATTEMPTS = 5
# A segment without a limit is so long: a number that every program can count with.
NO_LIMIT_MINUTES = 365 * 24 * 60.0
# So much of a segment is all of it: a TERM so late is its limit and not a preemption.
NEARLY_ALL = 0.9
# Slurm counts whole minutes and starts its clock a little before ours: a job that ends so soon after the segment was
# made for it.
MADE_FOR_IT_SECONDS = 120.0
# Slurm's times are whole seconds.
MOVED_SECONDS = 2.0
# Saves vary by half under load (docs/benchmarks.md); too early costs seconds, too late costs a save interval.
SAFETY = 1.5
# Whatever was measured, a busy node may be late by as much; it is little next to a segment.
LEAST_MARGIN_SECONDS = 2.0
LEAST_MARGIN_SHARE = 0.01
# A KILL comes before Slurm's by as much.
LAST_SECONDS = 1.0
# An owner that works to its own end needs its length and a little more; one that cannot be seen, its silence.
WAITING_SECONDS = lease.STALE_SECONDS + 60.0
# How often a job asks when it will be ended: six questions an hour, and one shortly before it would stop.
LOOK_SECONDS = 600.0
LAST_LOOK_SECONDS = 15.0
# A margin that changes by less is not worth a line in the log.
TOLD_SECONDS = 1.0


@dataclass(frozen=True)
class Margin:
    """Seconds before the end of a segment: when the program is asked to stop, and what is kept for publishing alone."""

    stop_seconds: float
    publish_seconds: float
    longest_seconds: float = math.inf
    is_of_no_use: bool = False  # the program was killed although it had the longest margin: a longer one is no help

    @property
    def grown_seconds(self) -> float | None:
        """Return what the next attempt keeps for the stop if this one is killed; None if it gets no more than this."""
        if self.is_of_no_use or self.stop_seconds >= self.longest_seconds:
            return None
        return min(2 * self.stop_seconds, self.longest_seconds)

    @property
    def last_seconds(self) -> float:
        """Return how long before Slurm does it a program is killed that does not leave, to publish what it had saved.

        Much less than the margin: a program that is asked to stop at its beginning needs it to save.
        """
        return min(LAST_SECONDS, self.stop_seconds / 8)

    def after_save(self, writing_seconds: float | None, publishing_seconds: float) -> Margin:
        """Return the margin after a save in the middle of the segment, which shows what the one at its end will take.

        It is never lowered: no save shows how long the program needs until it notices, and until it has left.
        """
        publish = max(self.publish_seconds, _time_to_publish(publishing_seconds))
        shown = 0.0 if writing_seconds is None else SAFETY * (writing_seconds + publishing_seconds)
        return replace(
            self,
            stop_seconds=min(max(self.stop_seconds, shown, publish), self.longest_seconds),
            publish_seconds=min(publish, self.longest_seconds),
        )


@dataclass(frozen=True)
class Deadline:
    """The end of a segment on the monotonic clock, and where Slurm ends it by force."""

    ends: float
    forced: float = math.inf

    def left_seconds(self) -> float:
        return self.ends - time.monotonic()

    def seconds_to_force(self) -> float:
        """Return the seconds until Slurm ends the job by force; infinite where nothing does."""
        return self.forced - time.monotonic()

    def moved(self, end_unix: float) -> Deadline:
        """Return the deadline after Slurm has moved the end of the job; itself if it has not, or if that is past.

        A longer job works longer, if it was made for this segment alone; a shorter one leaves earlier.  `end_unix` is
        by this node's clock.
        """
        now = time.monotonic()
        forced = now + end_unix - time.time()
        if abs(forced - self.forced) < MOVED_SECONDS or forced <= now:
            return self
        is_made_for_it = 0 <= self.forced - self.ends < MADE_FOR_IT_SECONDS
        longer = max(0.0, forced - self.forced) if is_made_for_it else 0.0
        return Deadline(min(self.ends + longer, forced), forced)

    def unix(self, before_seconds: float) -> float:
        """Return the Unix time of the moment `before_seconds` before the end."""
        return time.time() + self.left_seconds() - before_seconds


def deadline_for(segment_seconds: float, job: SlurmJob | None) -> Deadline:
    """Return the configured length from now on, or the end of Slurm's job if that is sooner.

    It is not always: an allocation may serve many segments, and a partition without a limit says a year.
    """
    now = time.monotonic()
    if job is None or job.end_here_unix is None:
        return Deadline(now + segment_seconds)
    forced = now + job.end_here_unix - time.time()
    return Deadline(min(now + segment_seconds, forced), forced)


def learn_margin(attempts: Sequence[Attempt], segment_seconds: float, first_seconds: float | None) -> Margin:
    """Learn the margin from what stops and saves of this run took; before anything is known, a tenth of the segment.

    The first margin lies between 1 and 60 s and can be set in the config; none exceeds half of the segment.  Only
    stops that ended by themselves say how long one takes; one that was killed doubles the margin that it had.
    """
    stops = [attempt.stop_seconds for attempt in attempts if attempt.has_stopped_by_itself]
    took = [seconds for seconds in stops[-LEARNED_ATTEMPTS:] if seconds is not None]
    saves = [attempt.save_seconds for attempt in attempts if attempt.saves]
    publish = _time_to_publish(max(saves[-LEARNED_ATTEMPTS:], default=0.1))
    least = min(LEAST_MARGIN_SECONDS, LEAST_MARGIN_SHARE * segment_seconds)
    guess = first_seconds or min(60.0, max(1.0, segment_seconds / 10))
    stop = max(SAFETY * max(took) + 0.2, least) if took else guess
    killed, is_of_no_use = _killed_lately(attempts)
    if killed:
        grown = [] if is_of_no_use else [attempt.times.next_margin_seconds or 0.0 for attempt in killed]
        stop = max(stop, first_seconds or 0.0, *grown)
    longest = segment_seconds / 2
    return Margin(min(max(stop, publish), longest), min(publish, longest), longest, is_of_no_use)


def _killed_lately(attempts: Sequence[Attempt]) -> tuple[list[Attempt], bool]:
    """Return those of the last few stops that were killed although the margin said when they were asked.

    Return also True if one with the longest margin was killed, and none has ended by itself since: such a program does
    not listen, or needs more than there is, and half of each segment would be wasted.
    """
    stops = [
        attempt
        for attempt in attempts
        if attempt.has_stopped_by_itself
        or (attempt.was_killed_stopping and attempt.times.stop_margin_seconds is not None)
    ]
    since = takewhile(lambda attempt: not attempt.has_stopped_by_itself, reversed(stops))
    killed = [attempt for attempt in stops[-LEARNED_ATTEMPTS:] if attempt.was_killed_stopping]
    return killed, any(not attempt.gets_more_margin for attempt in since)


def _time_to_publish(seconds: float) -> float:
    return SAFETY * seconds + 0.1


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
    return is_other_job and JOB_NOTE in environment and not job.places.record(owner.segment).exists()


@dataclass
class JobTime:
    """Track when the job must end, and when its program must be asked to stop; `slurm_job` is None outside of Slurm."""

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
        self.written_unix = self.deadline.unix(self.margin.publish_seconds)
        self.attempt_folder.write_deadline(self.written_unix)
        return self.written_unix

    def learn_from_save(self, writing_seconds: float | None, publishing_seconds: float) -> None:
        """Fit the margin to a save in the middle of the segment, which shows what the one at its end will take."""
        before, self.margin = self.margin, self.margin.after_save(writing_seconds, publishing_seconds)
        if self.margin.publish_seconds > before.publish_seconds:
            self.write_deadline()
        if abs(self.margin.stop_seconds - before.stop_seconds) >= TOLD_SECONDS:
            logger.info(f"by what a save takes: told to stop {self.margin.stop_seconds:.1f} s before the end")

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
        if abs(self.deadline.unix(self.margin.publish_seconds) - self.written_unix) >= MOVED_SECONDS:
            self.write_deadline()  # this node's clock was set

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
        logger.info(f"Slurm ends the job {change} than it said; {moved.left_seconds():.0f} s are left")
        self.write_deadline()

    def _end_here(self, asked: SlurmJob) -> float:
        """Return the end by this node's clock, which may have been set meanwhile: Slurm's two ends are compared."""
        known = self.slurm_job.end_unix if self.slurm_job else None
        if known is None or asked.end_unix is None:
            return asked.timed().end_here_unix or math.inf
        return time.time() + self.deadline.seconds_to_force() + asked.end_unix - known


def job_time(job: Job, attempts: Sequence[Attempt], attempt_folder: AttemptFolder) -> JobTime:
    """Return the time from now, or as Slurm counts it, and log what is unusual; the margin comes from the attempts."""
    seconds = job.run.segment_minutes * 60
    slurm_job = job_around_us()
    if slurm_job is not None and slurm_job.end_unix is None:
        alone = f"counting on {job.run.segment_minutes:g} minutes alone"
        logger.info(f"Slurm does not say when it ends job {slurm_job.job_id}: {alone}")
    if slurm_job is not None and slurm_job.remark:
        logger.info(slurm_job.remark)
    deadline = deadline_for(seconds, slurm_job)
    left_seconds = deadline.left_seconds()
    first, stall = job.run.first_margin_seconds, job.run.stall_minutes
    margin = learn_margin(attempts, min(seconds, left_seconds), first)
    if job.run.least_minutes is not None and left_seconds < NEARLY_ALL * seconds:
        logger.info(f"Slurm gives this job {left_seconds / 60:.3g} of {job.run.segment_minutes:g} minutes")
    if first is not None and first > margin.longest_seconds + 1:
        half = f"half of this segment's {2 * margin.longest_seconds:.0f} s counts"
        logger.warning(f"first_margin_seconds: found {first:g}; {half}; for more set a longer segment_minutes")
    if stall is not None and stall * 60 >= left_seconds:
        never = f"this segment ends in {left_seconds / 60:.3g} minutes, before a stall could be seen"
        logger.warning(f"stall_minutes: found {stall:g}; {never}; set a smaller one")
    if left_seconds < NO_LIMIT_MINUTES * 60 - margin.longest_seconds:
        logger.info(f"time: {left_seconds:.0f} s, told to stop {margin.stop_seconds:.1f} s before the end")
    return JobTime(attempt_folder, slurm_job, deadline, margin)
