"""What Slurm says of one job that is over: whether it ever started, where, and its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unbroken.slurm.states import ALIVE
from unbroken.slurm.tables import record, table

_ACCOUNTED = ("JobID", "State", "NodeList", "ExitCode", "End")


@dataclass(frozen=True)
class EndedJob:
    """A job that is over; `node` is the first one that it ran on, empty if it never started."""

    job_id: str
    state: str
    node: str
    exit_code: int
    end_unix: float | None = None

    @property
    def has_started(self) -> bool:
        """False for a job that was cancelled while it waited."""
        return self.node != ""


def ended_job(job_id: str) -> EndedJob | None:
    """By the controller, or by accounting once that has forgotten it; None while it lives, or if nobody knows."""
    found = _by_controller(job_id) or _by_accounting(job_id)
    return None if found is None or found.state in ALIVE else found


def _by_controller(job_id: str) -> EndedJob | None:
    shown = record("show", "job", job_id)
    if "JobState" not in shown:
        return None
    # The batch host is one name; a list of nodes may be written as node[1-4].
    node = shown.get("BatchHost", "") if shown.get("NodeList", "") not in {"", "(null)"} else ""
    return EndedJob(job_id, shown["JobState"], node, _exit_code(shown.get("ExitCode", "")), _unix(shown.get("EndTime")))


def _by_accounting(job_id: str) -> EndedJob | None:
    rows = table("sacct", "--allocations", "--jobs", job_id, columns=_ACCOUNTED)
    return _accounted(rows[-1]) if rows and rows[-1][1] else None


def ended_in_accounting(numbers: Sequence[str]) -> list[EndedJob]:
    """Return the jobs, and tasks of arrays, with these numbers that accounting lists as over; none without it."""
    rows = table("sacct", "--allocations", "--jobs", ",".join(numbers), columns=_ACCOUNTED) if numbers else None
    jobs = [_accounted(row) for row in rows or [] if row[1]]
    return [job for job in jobs if job.state not in ALIVE]


def _accounted(row: Sequence[str]) -> EndedJob:
    job_id, state, nodes, code, end = row
    first = "" if nodes == "None assigned" else nodes.partition(",")[0]
    return EndedJob(job_id, state.split()[0], first, _exit_code(code), _unix(end))


def _unix(text: str | None) -> float | None:
    return float(text) if text and text.isdecimal() else None


def _exit_code(text: str) -> int:
    """Of `75:0`, where a signal may stand behind the colon."""
    code = text.partition(":")[0]
    return int(code) if code.isdecimal() else 0
