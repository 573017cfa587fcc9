"""What Slurm says of one job that is over: whether it ever started, where, and its exit code."""

from __future__ import annotations

from dataclasses import dataclass

from unbroken.slurm.states import ALIVE
from unbroken.slurm.tables import record, table


@dataclass(frozen=True)
class EndedJob:
    """A job that is over; `node` is the first one that it ran on, empty if it never started."""

    job_id: str
    state: str
    node: str
    exit_code: int

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
    return EndedJob(job_id, shown["JobState"], node, _exit_code(shown.get("ExitCode", "")))


def _by_accounting(job_id: str) -> EndedJob | None:
    rows = table("sacct", "--allocations", "--jobs", job_id, columns=("State", "NodeList", "ExitCode"))
    if not rows or not rows[-1][0]:
        return None
    state, nodes, code = rows[-1]
    first = "" if nodes == "None assigned" else nodes.partition(",")[0]
    return EndedJob(job_id, state.split()[0], first, _exit_code(code))


def _exit_code(text: str) -> int:
    """Of `75:0`, where a signal may stand behind the colon."""
    code = text.partition(":")[0]
    return int(code) if code.isdecimal() else 0
