"""When a job was submitted, could have started, and started: by Slurm's clock, in Unix seconds."""

from __future__ import annotations

from dataclasses import dataclass

from unbroken.slurm.tables import record


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


def _unix(text: str) -> float | None:
    return float(text) if text.isdecimal() else None
