"""Ask Slurm about jobs: the controller, then accounting where there is one.

No answer is None, and says nothing about the jobs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unbroken.slurm.client import (
    PATIENCE_SECONDS,
    SHORT_PATIENCE_SECONDS,
    has_command,
    job_record,
    may_ask_here,
    table,
)
from unbroken.slurm.job import STARTED, EndState, ListedJob, number_of, parse

# Times are whole seconds, taken on two machines.
SLACK_SECONDS = 5.0
# What each command calls the fields of a job [man squeue, sacct: --format; scontrol show job].
_SQUEUE = {
    "%u": "user", "%N": "node", "%i": "job_id", "%T": "state", "%r": "reason", "%V": "submit_unix", "%S": "start_unix",
    "%e": "end_unix", "%k": "comment", "%Z": "folder",
}  # fmt: skip
_SACCT = {
    "JobID": "job_id", "State": "state", "NodeList": "node", "ExitCode": "exit_code", "Start": "start_unix",
    "End": "end_unix",
}  # fmt: skip
_SCONTROL = {
    "JobState": "state", "NodeList": "node", "ExitCode": "exit_code", "SubmitTime": "submit_unix",
    "EligibleTime": "eligible_unix", "StartTime": "start_unix", "EndTime": "end_unix",
}  # fmt: skip


# --- jobs in the queue ---


def my_jobs() -> list[ListedJob] | None:
    """Return all jobs of this user that the controller remembers, ended ones too, in the order of their numbers."""
    return _in_queue("--me")


def job_of_anyone(job_id: str) -> ListedJob | None:
    """Return a job by its number, also another user's; of an array a task that is not over, if there is one.

    None if the controller does not know it, or does not show it to us.  Where a site hides other users' jobs
    (PrivateData=jobs), asking for one by its number shows none either.
    """
    jobs = _in_queue("--jobs", job_id) or []
    return next((job for job in jobs if job.is_alive), jobs[0] if jobs else None)


def end_of(job_id: str) -> float | None:
    """Return when Slurm will end a running job (Unix seconds), as it stands now; None if it does not say.

    Of a heterogeneous job the component that ends first decides.
    """
    jobs = _in_queue("--jobs", job_id, patience_seconds=SHORT_PATIENCE_SECONDS) or []
    return min((job.end_unix for job in jobs if job.end_unix is not None), default=None)


def _in_queue(*words: str, patience_seconds: float = PATIENCE_SECONDS) -> list[ListedJob] | None:
    rows = table("squeue", *words, "--states=all", columns=tuple(_SQUEUE), patience_seconds=patience_seconds)
    if rows is None:
        return None
    jobs = [task for row in rows for task in parse(zip(_SQUEUE.values(), row, strict=True)).tasks]
    return sorted(jobs, key=lambda job: number_of(job.job_id))


@dataclass(frozen=True)
class Queue:
    """This user's jobs that were submitted from one folder for segments, in the order of their numbers."""

    is_known: bool  # false where there is no Slurm, or it does not answer: that is not "no job"
    out: tuple[ListedJob, ...] = ()  # not over
    over: tuple[ListedJob, ...] = ()  # which the controller remembers for some minutes


def queue_of(folder: Path) -> Queue:
    """Return the jobs of a folder as Slurm lists them now."""
    if not has_command("squeue"):
        return Queue(is_known=False)
    jobs, here = _in_queue("--me", patience_seconds=SHORT_PATIENCE_SECONDS), folder.resolve()
    own = [job for job in jobs or [] if job.run and job.folder.resolve() == here]
    out = tuple(job for job in own if job.is_alive)
    return Queue(jobs is not None, out, tuple(job for job in own if not job.is_alive))


class RecentQueue:
    """The jobs of a folder, looked at often: Slurm is asked when its last answer is older than so many seconds."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds
        self._asked = -float("inf")
        self._queue = Queue(is_known=False)

    def look(self) -> Queue:
        """Return the last answer, or a new one."""
        if time.monotonic() - self._asked > self._seconds:
            self._queue, self._asked = queue_of(self._folder), time.monotonic()
        return self._queue


def described(jobs: Sequence[ListedJob], *, shows_started: bool = True) -> list[str]:
    """Return what to show of a run's jobs: the running or next one, and how many tasks wait behind it.

    A waiting task is shown by itself only if the user has to do something about it.
    """
    started = [job for job in jobs if not job.is_waiting]
    waiting = [job for job in jobs if job.is_waiting]
    first = next((job for job in waiting if not job.is_behind), waiting[0] if waiting else None)
    stuck = {job.array: job for job in reversed(waiting) if job.is_stuck}
    shown = dict.fromkeys([*([first] if first and not started else []), *stuck.values()])
    shown.update(dict.fromkeys(job for job in waiting if "_" not in job.job_id))
    behind = Counter(job.array for job in waiting if job not in shown)
    return [job.describe() for job in [*(started if shows_started else []), *shown]] + [
        f"{count} task{'s' if count > 1 else ''} of job {array} wait{'' if count > 1 else 's'} behind it"
        for array, count in behind.items()
    ]


# --- jobs that are over, and single ones ---


def ended(job_id: str, ran_at_unix: float, cluster: str = "") -> ListedJob | None:
    """Return the job as the start that ran at that time ended; None while it lives, or if its end is unknown.

    A job that Slurm starts again keeps its number.  `squeue --states=all` shows its present start only, `sacct
    --duplicates` a row for each [measured, 22.05].  A job of another `cluster` is unknown; '' where it was not noted.
    """
    if not may_ask_here(cluster):
        return None
    shown = next(iter(_in_queue("--jobs", job_id, patience_seconds=SHORT_PATIENCE_SECONDS) or []), None)
    if shown is not None and not shown.is_alive:
        return shown
    if shown is not None and shown.state in STARTED and (shown.start_unix or 0.0) <= ran_at_unix + SLACK_SECONDS:
        return None
    # Either the controller has forgotten the job, or it has started it again since.
    starts = _in_accounting("--duplicates", "--jobs", job_id, patience_seconds=SHORT_PATIENCE_SECONDS)
    over = [job for job in starts if job.end_unix is not None and job.end_unix >= ran_at_unix - SLACK_SECONDS]
    again = replace(shown, state=EndState.REQUEUED, end_unix=None) if shown else None
    return next(iter(over), again)


def job_by_controller(job_id: str) -> ListedJob | None:
    """Return a job with its times, of its present start; None if the controller does not know it, or not answer."""
    shown = job_record(job_id)
    if "JobState" not in shown:
        return None
    # The batch host is one name; a list of nodes may be written as node[1-4].
    if shown.get("NodeList", "") not in {"", "(null)"}:
        shown["NodeList"] = shown.get("BatchHost", "")
    return parse([("job_id", job_id), *((name, shown[key]) for key, name in _SCONTROL.items() if key in shown)])


def ended_job(job_id: str) -> ListedJob | None:
    """Return a job that is over, by the controller, or by accounting once that has forgotten it; else None."""
    found = job_by_controller(job_id) or next(reversed(jobs_by_accounting([job_id])), None)
    return None if found is None or found.is_alive else found


def jobs_by_accounting(numbers: Collection[str]) -> list[ListedJob]:
    """Return the jobs, and tasks of arrays, with these numbers; none where there is no accounting."""
    return _in_accounting("--jobs", ",".join(sorted(numbers, key=number_of))) if numbers else []


def state_behind_completing(job_id: str, restarts: int) -> str:
    """Return how Slurm is ending the job around this process, which has started again so often; '' if it does not show.

    By the controller alone, also where there is no accounting.  squeue shows COMPLETING until we have left.  But while
    its batch script lives only a cancellation ends a job without a reason [slurmctld 22.05: job_mgr.c, preempt.c].
    """
    shown = job_record(job_id)
    if shown.get("JobState") != "COMPLETING":
        return ""
    if shown.get("Restarts") != str(restarts):
        return "REQUEUED"
    if shown.get("PreemptTime", "None") != "None":
        return "PREEMPTED"
    return {"None": "CANCELLED", "TimeLimit": "TIMEOUT"}.get(shown.get("Reason", ""), "")


def _in_accounting(*words: str, patience_seconds: float = PATIENCE_SECONDS) -> list[ListedJob]:
    rows = table("sacct", "--allocations", *words, columns=tuple(_SACCT), patience_seconds=patience_seconds)
    return [parse(zip(_SACCT.values(), row, strict=True)) for row in rows or [] if row[1]]
