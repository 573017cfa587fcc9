"""The jobs that are out for a working directory: waiting in the queue or at work, whoever submitted them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unbroken.slurm.commands import has_command
from unbroken.slurm.job_comment import chain_in, segment_in
from unbroken.slurm.queue import number_of, tasks_of
from unbroken.slurm.reasons import advice, needs_hand
from unbroken.slurm.states import ALIVE
from unbroken.slurm.tables import table

# A user who types `unbroken status` waits for it.
PATIENCE_SECONDS = 5.0
# Why a task waits behind another one of its run.
_BEHIND = {"JobArrayTaskLimit", "Dependency"}
_COLUMNS = ("%i", "%T", "%r", "%S", "%e", "%k", "%Z")


@dataclass(frozen=True)
class OutJob:
    """A segment's job as Slurm lists it; `start_unix` and `end_unix` are when it did, or is expected to.

    `segment` is 0 for a task of a chain, which does whichever segment comes next.
    """

    job_id: str
    run: str
    segment: int
    state: str
    reason: str
    start_unix: float | None
    end_unix: float | None = None

    @property
    def is_waiting(self) -> bool:
        return self.state == "PENDING"

    @property
    def is_behind(self) -> bool:
        """Return True if it waits for another job or task of its run."""
        return self.is_waiting and self.reason in _BEHIND

    @property
    def array(self) -> str:
        """Return the number by which Slurm means all tasks of its array; its own number if it is in none."""
        return self.job_id.partition("_")[0]

    def describe(self) -> str:
        """`Slurm job 12 for segment 3 is PENDING (Resources): it is next as soon as there is room`."""
        of_segment = f" for segment {self.segment}" if self.segment else ""
        text = f"Slurm job {self.job_id}{of_segment} is {self.state}"
        if not self.is_waiting:
            return text
        todo = advice(self.reason, self.array)
        text += f" ({self.reason})" + (f": {todo}" if todo else "")
        if self.start_unix is None or self.start_unix < time.time():
            return text
        return f"{text}; expected to start {time.strftime('%d %b %H:%M', time.localtime(self.start_unix))}"


def described(jobs: Sequence[OutJob], shows_started: bool = True) -> list[str]:
    """Return what to show of a run's jobs: the one at work or next in the queue, and how many tasks wait behind it.

    A waiting task is shown by itself only if somebody has to do something about it.
    """
    started = [job for job in jobs if not job.is_waiting]
    waiting = [job for job in jobs if job.is_waiting]
    first = next((job for job in waiting if not job.is_behind), waiting[0] if waiting else None)
    stuck = {job.array: job for job in reversed(waiting) if needs_hand(job.reason)}
    shown = dict.fromkeys([*([first] if first and not started else []), *stuck.values()])
    shown.update(dict.fromkeys(job for job in waiting if "_" not in job.job_id))
    behind = Counter(job.array for job in waiting if job not in shown)
    return [job.describe() for job in [*(started if shows_started else []), *shown]] + [
        f"{count} task{'s' if count > 1 else ''} of job {array} wait{'' if count > 1 else 's'} behind it"
        for array, count in behind.items()
    ]


@dataclass(frozen=True)
class Queue:
    """This user's jobs that were submitted from one folder for segments, in the order of their numbers."""

    is_known: bool  # false where there is no Slurm, or it does not answer: that is not "no job"
    out: tuple[OutJob, ...] = ()  # not over
    over: tuple[OutJob, ...] = ()  # which the controller remembers for some minutes


def queue_of(folder: Path) -> Queue:
    """The jobs of a folder as Slurm lists them now."""
    if not has_command("squeue"):
        return Queue(is_known=False)
    rows = table("squeue", "--me", "--states=all", columns=_COLUMNS, patience_seconds=PATIENCE_SECONDS)
    here = folder.resolve()
    own = [row for row in rows or [] if Path(row[6]).resolve() == here]
    found = [_job(number, *row[1:6]) for row in own for number in tasks_of(row[0])]
    jobs = sorted((job for job in found if job is not None), key=lambda job: number_of(job.job_id))
    out = tuple(job for job in jobs if job.state in ALIVE)
    return Queue(rows is not None, out, tuple(job for job in jobs if job not in out))


class RecentQueue:
    """The same for whoever looks often: Slurm is asked when its last answer is older than so many seconds."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds
        self._asked = -float("inf")
        self._queue = Queue(is_known=False)

    def look(self) -> Queue:
        if time.monotonic() - self._asked > self._seconds:
            self._queue, self._asked = queue_of(self._folder), time.monotonic()
        return self._queue


def jobs_out(folder: Path) -> list[OutJob]:
    """Those of them that are not over; empty also where there is no Slurm, or it does not answer."""
    return list(queue_of(folder).out)


def _job(job_id: str, state: str, reason: str, start: str, end: str, comment: str) -> OutJob | None:
    found = (chain_in(comment), 0) if chain_in(comment) else segment_in(comment)
    return OutJob(job_id, *found, state, reason, _unix(start), _unix(end)) if found else None


def _unix(text: str) -> float | None:
    return float(text) if text.isdecimal() else None
