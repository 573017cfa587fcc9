"""When a job was submitted, could have started, and started: by Slurm's clock, in Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass

from unbroken.slurm.commands import ask
from unbroken.slurm.queue import tasks_of
from unbroken.slurm.tables import record

# The short formats of squeue have no letter for the second time [man squeue: --Format].
_WAITING = "JobArrayID:60,SubmitTime:30,EligibleTime:30"


@dataclass(frozen=True)
class JobTimes:
    """None where Slurm does not say: `eligible` of a job that is held or waits for another."""

    submitted: float | None
    eligible: float | None
    started: float | None


def times_of(job_id: str) -> JobTimes | None:
    """Those of a job that the controller knows, of its present start; None if it does not answer."""
    shown = record("show", "job", job_id)
    if "SubmitTime" not in shown:
        return None
    return JobTimes(*(_unix(shown.get(name, "")) for name in ("SubmitTime", "EligibleTime", "StartTime")))


def times_of_waiting() -> dict[str, JobTimes]:
    """Those of all jobs of this user that wait, by their numbers, in one question; empty if nobody answers."""
    text = ask("squeue", "--me", "--states=PENDING", "--noheader", f"--Format={_WAITING}") or ""
    rows = (line.split() for line in text.splitlines())
    return {
        job: JobTimes(_unix(submitted), _unix(eligible), None)
        for shown, submitted, eligible in (row for row in rows if len(row) == 3)
        for job in tasks_of(shown)
    }


def _unix(text: str) -> float | None:
    return float(text) if text.isdecimal() else None
