"""Whether the time of the job around a call is up: Snakemake's `retries` call again in the job that has just paused."""

from __future__ import annotations

import time
from collections.abc import Sequence

from unbroken.runs.history import Attempt
from unbroken.runs.segment_end import EndKind
from unbroken.slurm.this_job import SlurmJob

# Slurm's times are whole seconds, and its clock and ours drift.
ROUNDING_SECONDS = 5.0


def is_up(attempts: Sequence[Attempt], around: SlurmJob | None) -> bool:
    """True if nothing should be started in this job any more; Slurm is asked first whether it has given more time."""
    return _seems_up(attempts, around) and around is not None and _seems_up(attempts, around.asked())


def _seems_up(attempts: Sequence[Attempt], around: SlurmJob | None) -> bool:
    if around is None or around.end_here_unix is None:
        return False
    left = around.end_here_unix - time.time()
    return left <= 0 or any(left <= _left_at_pause(attempt, around) + ROUNDING_SECONDS for attempt in attempts[-1:])


def _left_at_pause(attempt: Attempt, around: SlurmJob) -> float:
    """What the job had left when this attempt was told that its time is up; a requeued job has more."""
    is_its_own = attempt.slurm_job == around.job_id and attempt.kind is EndKind.PAUSED
    was_asked = attempt.stop_seconds is not None or attempt.times.stop_asked is not None
    is_told = was_asked and attempt.unused_seconds is not None
    return attempt.unused_seconds or 0.0 if is_its_own and is_told else -ROUNDING_SECONDS
