"""Compute when a segment must end, on a clock that cannot jump, and how long before it must be asked to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from unbroken.runs.history import Attempt
from unbroken.slurm.this_job import SlurmJob

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
# Of the first margin so much stays, after a save has shown what one takes.
UNSEEN_SHARE = 0.25


@dataclass(frozen=True)
class Margin:
    """Seconds before the end of a segment: when the program is asked to stop, and what is kept for publishing alone.

    `guess_seconds` is what was guessed for the stop, until one was measured or the config says it; else 0.
    """

    stop_seconds: float
    publish_seconds: float
    longest_seconds: float = math.inf
    guess_seconds: float = 0.0
    is_lowered: bool = False
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

        It takes the place of a guess if the program says how long it wrote; a part of the guess stays for what no save
        shows: until the program notices, and until it has left.  What was measured, or configured, is never lowered.
        """
        publish = max(self.publish_seconds, _time_to_publish(publishing_seconds))
        stop = self.stop_seconds
        if self.guess_seconds and writing_seconds is not None:
            shown = SAFETY * (writing_seconds + publishing_seconds) + UNSEEN_SHARE * self.guess_seconds
            stop = max(stop, shown) if self.is_lowered else shown
        return replace(
            self,
            stop_seconds=min(max(stop, publish), self.longest_seconds),
            publish_seconds=min(publish, self.longest_seconds),
            is_lowered=self.is_lowered or writing_seconds is not None,
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
    killed, is_of_no_use = _killed_lately(attempts)
    saves = [attempt.save_seconds for attempt in attempts if attempt.saves]
    publish = _time_to_publish(max(saves[-LEARNED_ATTEMPTS:], default=0.1))
    guess = 0.0 if took or first_seconds else min(60.0, max(1.0, segment_seconds / 10))
    least = min(LEAST_MARGIN_SECONDS, LEAST_MARGIN_SHARE * segment_seconds)
    stop = max(SAFETY * max(took) + 0.2, least) if took else first_seconds or guess
    if killed:
        grown = [] if is_of_no_use else [attempt.times.next_margin_seconds or 0.0 for attempt in killed]
        stop, guess = max(stop, first_seconds or 0.0, *grown, 0.0), 0.0
    longest = segment_seconds / 2
    return Margin(min(max(stop, publish), longest), min(publish, longest), longest, guess, is_of_no_use=is_of_no_use)


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
