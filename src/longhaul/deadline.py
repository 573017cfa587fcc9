"""When a segment must be out, counted on a clock that cannot jump, and how long before it has to be told."""

from __future__ import annotations

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
    """The end of a segment on the monotonic clock; a hard one is enforced by Slurm, a soft one by the config."""

    ends: float
    is_hard: bool

    def left_seconds(self) -> float:
        return self.ends - time.monotonic()

    def unix(self, before_seconds: float) -> float:
        """Unix time of the moment `before_seconds` before the end."""
        return time.time() + self.left_seconds() - before_seconds


def deadline_for(segment_seconds: float, job: SlurmJob | None) -> Deadline:
    """The end of Slurm's job where Slurm tells it, else the configured length from now on."""
    soft = Deadline(time.monotonic() + segment_seconds, is_hard=False)
    if job is None or job.end_unix is None:
        return soft
    return Deadline(time.monotonic() + job.end_unix - time.time(), is_hard=True)


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
