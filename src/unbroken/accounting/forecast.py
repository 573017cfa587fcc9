"""The forecast: when a run will be done and how many segments it needs, from its own history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unbroken.runs.history import Attempt


@dataclass(frozen=True)
class Forecast:
    """Seconds from now to the goal, waits included, as quantiles; 90 of 100 runs end between `low` and `high`."""

    low_seconds: float  # 5 %
    median_seconds: float
    p90_seconds: float
    high_seconds: float  # 95 %
    segments_median: int  # that are still needed, the one at work among them
    segments_p90: int
    based_on: int  # attempts that it was made from


def forecast(
    attempts: Sequence[Attempt],
    done: float,
    goal: float,
    now: float,
    segment_seconds: float | None = None,
    at_work_since: float | None = None,
) -> Forecast | None:
    """The forecast of a run at `done` of `goal` at `now` (Unix seconds); None while too little is known.

    `segment_seconds` is the limit of the segments to come, `at_work_since` when the attempt at work began.
    """
    raise NotImplementedError
