"""When a segment must be out, counted on a clock that cannot jump, and how long before it has to be told."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from longhaul.history import Attempt
from longhaul.slurm import SlurmJob

# What a stop took is learned from the last few attempts: enough to see a slow file server, few enough to forget one.
LEARNED_ATTEMPTS = 5
# Saves vary by half under load (docs/benchmarks.md); too early costs seconds, too late costs a save interval.
SAFETY = 1.5


@dataclass(frozen=True)
class Margin:
    """Seconds before the end of a segment: when the program is told, and what is kept for publishing alone."""

    stop_seconds: float
    publish_seconds: float


@dataclass(frozen=True)
class Deadline:
    """The end of a segment on the monotonic clock, and where Slurm ends it by force."""

    ends: float
    forced: float = math.inf

    def left_seconds(self) -> float:
        return self.ends - time.monotonic()

    def seconds_to_force(self) -> float:
        """Infinite where nobody will end us by force."""
        return self.forced - time.monotonic()

    def unix(self, before_seconds: float) -> float:
        """Unix time of the moment `before_seconds` before the end."""
        return time.time() + self.left_seconds() - before_seconds


def deadline_for(segment_seconds: float, job: SlurmJob | None) -> Deadline:
    """The configured length from now on, or the end of Slurm's job if that is sooner.

    It is not always: an allocation may serve many segments, and a partition without a limit says a year.
    """
    now = time.monotonic()
    if job is None or job.end_unix is None:
        return Deadline(now + segment_seconds)
    forced = now + job.end_unix - time.time()
    return Deadline(min(now + segment_seconds, forced), forced)


def learn_margin(attempts: Sequence[Attempt], segment_seconds: float, first_seconds: float | None) -> Margin:
    """The margin from what stops and saves of this run took; before anything is known, a tenth of the segment.

    The first margin lies between 1 and 60 s and can be set in the config; none exceeds half of the segment.
    """
    stops = [attempt.stop_seconds for attempt in attempts if attempt.stop_seconds is not None]
    saves = [attempt.save_seconds for attempt in attempts if attempt.saves]
    publish = SAFETY * max(saves[-LEARNED_ATTEMPTS:], default=0.1) + 0.1
    if stops:
        stop = SAFETY * max(stops[-LEARNED_ATTEMPTS:]) + 0.2
    else:
        stop = first_seconds or min(60.0, max(1.0, segment_seconds / 10))
    longest = segment_seconds / 2
    return Margin(min(max(stop, publish), longest), min(publish, longest))
