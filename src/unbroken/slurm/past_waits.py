"""How long this user's jobs have waited in the queue, by accounting."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from unbroken.slurm.tables import table

DAYS = 30


@dataclass(frozen=True)
class PastWait:
    """One job that has started: from when it was allowed to."""

    partition: str
    limit_minutes: float
    seconds: float


def past_waits(days: int = DAYS) -> list[PastWait]:
    """Those of the last days; empty where there is no accounting."""
    columns = ("Partition", "TimelimitRaw", "Eligible", "Start")
    rows = table("sacct", f"--starttime=now-{days}days", "--allocations", columns=columns) or []
    return [found for row in rows if (found := _wait(*row)) is not None]


def _wait(partition: str, limit: str, eligible: str, start: str) -> PastWait | None:
    """None for a job that has not started, or has no limit."""
    try:
        seconds = (datetime.fromisoformat(start) - datetime.fromisoformat(eligible)).total_seconds()
        return PastWait(partition, float(limit), max(seconds, 0.0))
    except ValueError:  # `Unknown`, `None`, `UNLIMITED`
        return None
