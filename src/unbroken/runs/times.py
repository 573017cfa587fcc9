"""When what happened in an attempt, as its line of history keeps it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeGuard

from unbroken.system import jsontext

# In the folder of an attempt.
FILE_NAME = "times.json"


@dataclass(frozen=True)
class Times:
    """Moments in Unix seconds by one clock for all attempts: Slurm's where there is one, else the file server's.

    None where it did not happen, or nobody knows.  The last three are lengths in seconds.
    """

    submitted: float | None = None
    eligible: float | None = None  # from then on nothing but room was missing
    job_started: float | None = None  # outside Slurm: the process that became the segment
    program_started: float | None = None
    first_step: float | None = None
    last_step: float | None = None
    stop_asked: float | None = None
    program_ended: float | None = None
    saved: float | None = None  # what the program had done by then is in its last checkpoint
    ended: float | None = None  # the attempt; of one that was killed: its last sign of life, or as Slurm says
    job_ended: float | None = None  # of one that was killed; others cannot know it, see below
    previous_job_ended: float | None = None  # the end of the job of the attempt before, which this one asked for
    stall_seconds: float | None = None  # the program stood still to save, all saves before `stop_asked` together
    suspended_seconds: float | None = None
    clock_ahead_seconds: float | None = None  # what the node's clock was ahead by; taken off already

    def to_json(self) -> dict[str, float]:
        """What is known, to the millisecond."""
        return {name: round(value, 3) for name, value in vars(self).items() if value is not None}


NO_TIMES = Times()
_NAMES = {entry.name for entry in fields(Times)}


def read_times(path: Path) -> Times:
    """The times of an attempt at work, or of one that was killed; none where they cannot be read."""
    try:
        return parse_times(jsontext.parse(path.read_text()))
    except (OSError, ValueError):
        return NO_TIMES


def parse_times(data: object) -> Times:
    """What `to_json` gave; what a later version has added, and what is no time, is passed over."""
    if not isinstance(data, Mapping):
        return NO_TIMES
    return Times(**{name: float(value) for name, value in data.items() if name in _NAMES and _is_time(value)})


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
