"""How long this user's jobs have waited in the queue, by accounting."""

from __future__ import annotations

from dataclasses import dataclass

from unbroken.slurm.tables import table

DAYS = 30


@dataclass(frozen=True)
class PastWait:
    """How long one job, or the first task of an array, waited from when it was allowed to start."""

    partition: str
    limit_minutes: float
    seconds: float


def past_waits(days: int = DAYS) -> list[PastWait]:
    """Return the waits of the last days; empty where there is no accounting.

    Of an array only the task that started first counts: the others waited for those before them too, and Slurm calls
    them eligible when they start [measured, 22.05].
    """
    columns = ("JobID", "Partition", "TimelimitRaw", "Eligible", "Start")
    rows = table("sacct", f"--starttime=now-{days}days", "--allocations", columns=columns) or []
    first = dict[str, PastWait]()
    for number, *row in sorted(rows, key=lambda row: row[-1]):
        found = _wait(*row)
        if found is not None:
            first.setdefault(number.partition("_")[0], found)
    return list(first.values())


def _wait(partition: str, limit: str, eligible: str, start: str) -> PastWait | None:
    """None for a job that has not started, or has no limit."""
    try:
        return PastWait(partition, float(limit), max(float(start) - float(eligible), 0.0))
    except ValueError:  # `Unknown`, `None`, `UNLIMITED`
        return None
