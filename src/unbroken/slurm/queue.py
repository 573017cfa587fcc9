"""The jobs of this user, as one question to the controller tells them, and how ended ones ended, by accounting."""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from unbroken.slurm.job_comment import is_comment
from unbroken.slurm.job_end import end_of
from unbroken.slurm.reasons import needs_hand
from unbroken.slurm.states import ALIVE
from unbroken.slurm.tables import record, table

# A job that Slurm ends leaves after KillWait and its epilog; after so long its node, or the epilog, hangs.
LEAVING_SECONDS = 300.0


@dataclass(frozen=True)
class MyJob:
    """A job as squeue shows it."""

    job_id: str
    state: str
    reason: str
    name: str
    comment: str
    folder: Path
    user: str = ""
    node: str = ""  # those that it runs, or ran, on; empty if it never started

    @property
    def is_alive(self) -> bool:
        return self.state in ALIVE

    @property
    def is_leaving(self) -> bool:
        """True if Slurm is ending it."""
        return self.state == "COMPLETING"

    @property
    def is_stuck(self) -> bool:
        """True if it waits for somebody to do something, such as to release it."""
        return self.state == "PENDING" and needs_hand(self.reason)


def my_jobs() -> list[MyJob] | None:
    """All jobs of this user that the controller remembers, ended ones too, in the order of their numbers.

    None if it does not answer, which says nothing about the jobs.
    """
    return _asked_for("--me")


def job_of_anyone(job_id: str) -> MyJob | None:
    """Return a job by its number, also another user's; of an array a task that is not over, if there is one.

    None if the controller does not know it, or does not show it to us.  Where a site hides other users' jobs
    (PrivateData=jobs), asking for one by its number shows none either.
    """
    jobs = _asked_for("--jobs", job_id) or []
    return next((job for job in jobs if job.is_alive), jobs[0] if jobs else None)


def _asked_for(*words: str) -> list[MyJob] | None:
    rows = table("squeue", *words, "--states=all", columns=("%u", "%N", "%i", "%T", "%r", "%j", "%k", "%Z"))
    if rows is None:
        return None
    jobs = [
        MyJob(number, state, reason, name, comment, Path(folder), user, node)
        for user, node, shown, state, reason, name, comment, folder in rows
        for number in (tasks_of(shown) if is_comment(comment) else [shown])
    ]
    return sorted(jobs, key=lambda job: number_of(job.job_id))


def hangs(job: MyJob) -> bool:
    """Return True if Slurm has been ending a job for so long that the next one starts without its end.

    Its process may live nevertheless; the lease of its run keeps others from writing then.
    """
    since = end_of(job.job_id) if job.is_leaving else None
    return since is not None and time.time() - since > LEAVING_SECONDS


def ended_states(job_ids: Collection[str]) -> dict[str, str]:
    """The states that accounting knows of jobs, by their numbers; empty where there is no accounting."""
    if not job_ids:
        return {}
    numbers = ",".join(sorted(job_ids, key=number_of))
    rows = table("sacct", "--jobs", numbers, "--allocations", columns=("JobID", "State")) or []
    # "CANCELLED by 1000" says who.
    return {job: state.split()[0] for job, state in rows if state}


def state_behind_completing(job_id: str, restarts: int) -> str:
    """How Slurm is ending the job around this process, which has started again so often; empty if it does not show it.

    By the controller alone, also where there is no accounting.  squeue shows COMPLETING until we have left.  But while
    its batch script lives only a cancellation ends a job without a reason [slurmctld 22.05: job_mgr.c, preempt.c].
    """
    shown = record("show", "job", job_id)
    if shown.get("JobState") != "COMPLETING":
        return ""
    if shown.get("Restarts") != str(restarts):
        return "REQUEUED"
    if shown.get("PreemptTime", "None") != "None":
        return "PREEMPTED"
    return {"None": "CANCELLED", "TimeLimit": "TIMEOUT"}.get(shown.get("Reason", ""), "")


def tasks_of(shown: str) -> list[str]:
    """`17_2`, `17_3` and `17_5` of `17_[2-3,5%1]`, as squeue shows what waits of an array; else what was shown."""
    found = re.fullmatch(r"(\d+)_\[([\d,-]+)(?:%\d+)?\]", shown)
    if found is None:
        return [shown]
    spans = [span.partition("-")[::2] for span in found[2].split(",")]
    numbers = (number for first, last in spans for number in range(int(first), int(last or first) + 1))
    return [f"{found[1]}_{number}" for number in numbers]


def in_short(job_ids: Collection[str]) -> str:
    """Return numbers of jobs as squeue would show them: `17_[2-3,5], 18` of `17_2`, `17_3`, `17_5` and `18`."""
    arrays = dict[str, list[int]]()
    for array, task in sorted(map(number_of, job_ids)):
        arrays.setdefault(str(array), []).extend([task] if task else [])
    return ", ".join(f"{array}_{_spans(tasks)}" if tasks else array for array, tasks in arrays.items())


def _spans(tasks: list[int]) -> str:
    firsts = [task for task in tasks if task - 1 not in tasks]
    lasts = [task for task in tasks if task + 1 not in tasks]
    spans = [str(first) if first == last else f"{first}-{last}" for first, last in zip(firsts, lasts, strict=True)]
    return spans[0] if len(tasks) == 1 else f"[{','.join(spans)}]"


def number_of(job_id: str) -> tuple[int, int]:
    """By which jobs are in the order of their submission: 17 and 3 of `17_3`, an array's task, 17 and 0 of `17+1`."""
    found = re.match(r"(\d+)(?:_(\d+))?", job_id)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)
