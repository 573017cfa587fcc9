"""A job, or a task of an array, as Slurm's commands show it; one type and one parser for all of them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from unbroken.slurm.client import number_in
from unbroken.slurm.reasons import advice, needs_hand

# Slurm's words for the state of a job that may still do something [man squeue: JOB STATE CODES]; every other is an end.
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
STARTED = frozenset(
    {"CONFIGURING", "RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"}
)
ALIVE = WAITING | STARTED
# A job that Slurm ends leaves after KillWait and its epilog; after so long its node, or the epilog, hangs.
LEAVING_SECONDS = 300.0
# Before the key of a chain in the comment on its jobs.
_CHAIN = "unbroken chain "
# What snakemake-executor-plugin-slurm 2.8 writes: segment 3 of `demo` is `rule_toy_segment_wildcards_demo_003`.
_SEGMENT = re.compile(r"rule_\w*?_segment_wildcards_(?P<run>.+)_(?P<segment>\d+)")
# Why a task waits for another job or task of its run.
_BEHIND = {"JobArrayTaskLimit", "Dependency"}


class EndState(StrEnum):
    """Slurm's own words for how a job ended [man sacct: JOB STATE CODES]; what is not here counts as FAILED."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    DEADLINE = "DEADLINE"
    PREEMPTED = "PREEMPTED"
    REQUEUED = "REQUEUED"
    NODE_FAIL = "NODE_FAIL"
    BOOT_FAIL = "BOOT_FAIL"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"  # neither the controller nor accounting knows

    @classmethod
    def of(cls, word: str) -> EndState:
        """Return the state that Slurm names so."""
        return cls(word) if word in cls.__members__ else cls.FAILED

    @property
    def is_interruption(self) -> bool:
        """Return True if the machine was taken away and the program is not to blame."""
        return self in NOT_TO_BLAME or self in (EndState.TIMEOUT, EndState.DEADLINE)


# The machine was taken away, which says nothing about the program.  TIMEOUT is not among them: a program that brings no
# step forward in all of its time never will.
NOT_TO_BLAME = {EndState.PREEMPTED, EndState.REQUEUED, EndState.NODE_FAIL, EndState.BOOT_FAIL}


@dataclass(frozen=True)
class ListedJob:
    """Hold what Slurm says of a job; empty or None where a command does not say it.

    Times are Unix seconds by Slurm's clock.  `start_unix` and `end_unix` are when it did, or is expected to.
    `eligible_unix` is None while a job is held or waits for another one.
    """

    job_id: str
    state: str
    reason: str = ""
    comment: str = ""
    folder: Path = Path()
    user: str = ""
    node: str = ""  # the first that it runs, or ran, on; empty if it never started
    exit_code: int = 0
    submit_unix: float | None = None
    eligible_unix: float | None = None
    start_unix: float | None = None
    end_unix: float | None = None

    @property
    def ending(self) -> EndState:
        """Return how it ended, if it is over."""
        return EndState.of(self.state)

    @property
    def is_certainly_over(self) -> bool:
        """Return False if processes of an ended job may live on, on a node that Slurm does not reach."""
        return self.end_unix is not None and self.state not in (EndState.NODE_FAIL, EndState.BOOT_FAIL)

    @property
    def is_alive(self) -> bool:
        """Return True if it is not over."""
        return self.state in ALIVE

    @property
    def is_waiting(self) -> bool:
        """Return True if it has not started."""
        return self.state == "PENDING"

    @property
    def is_leaving(self) -> bool:
        """Return True if Slurm is ending it."""
        return self.state == "COMPLETING"

    @property
    def hangs(self) -> bool:
        """Return True if Slurm has been ending it for so long that the next one starts without its end.

        Its process may live nevertheless; the lease of its run keeps others from writing then.
        """
        return self.is_leaving and self.end_unix is not None and time.time() - self.end_unix > LEAVING_SECONDS

    @property
    def is_stuck(self) -> bool:
        """Return True if it waits for a person to do something, such as to release it."""
        return self.is_waiting and needs_hand(self.reason)

    @property
    def is_behind(self) -> bool:
        """Return True if it waits for another job or task of its run."""
        return self.is_waiting and self.reason in _BEHIND

    @property
    def has_started(self) -> bool:
        """Return False for a job that was cancelled while it waited."""
        return self.node != ""

    @property
    def tasks(self) -> list[ListedJob]:
        """Return the tasks that squeue shows as one job; only of our own and of the plugin's jobs, which are few."""
        numbers = tasks_of(self.job_id) if self.comment.startswith(("rule_", _CHAIN)) else [self.job_id]
        return [replace(self, job_id=number) for number in numbers]

    @property
    def array(self) -> str:
        """Return the number by which Slurm means all tasks of its array; its own number if it is in none."""
        return self.job_id.partition("_")[0]

    @property
    def chain(self) -> str:
        """Return the key of its chain: of a run by its name, of a user's own rule by its key; empty for other jobs."""
        return self.comment.removeprefix(_CHAIN) if self.comment.startswith(_CHAIN) else ""

    @property
    def run(self) -> str:
        """Return the run whose segment it does, also as a job of the Slurm plugin; empty for other jobs."""
        return self._segment[0]

    @property
    def segment(self) -> int:
        """Return the number of that segment; 0 for a task of a chain, which does whichever comes next."""
        return self._segment[1]

    @cached_property
    def _segment(self) -> tuple[str, int]:
        named = _SEGMENT.fullmatch(self.comment)
        return (named["run"], int(named["segment"])) if named else (self.chain, 0)

    def describe(self) -> str:
        """Return a line such as `Slurm job 12 for segment 3 is PENDING (Resources): it is next as soon as ...`."""
        of_segment = f" for segment {self.segment}" if self.segment else ""
        text = f"Slurm job {self.job_id}{of_segment} is {self.state}"
        if not self.is_waiting:
            return text
        todo = advice(self.reason, self.array)
        text += f" ({self.reason})" + (f": {todo}" if todo else "")
        if self.start_unix is None or self.start_unix < time.time():
            return text
        return f"{text}; expected to start {time.strftime('%d %b %H:%M', time.localtime(self.start_unix))}"


def chain_comment(key: str) -> str:
    """Return the comment on the jobs of a chain."""
    return f"{_CHAIN}{key}"


def parse(shown: Iterable[tuple[str, str]]) -> ListedJob:
    """Return the job whose fields, by our names for them, a command shows."""
    return ListedJob(**{name: _READ.get(name.rpartition("_")[2], str)(text) for name, text in shown})


# How a field is read that is no text, by the last word of its name.
_READ: Mapping[str, Callable[[str], Any]] = {
    "state": lambda text: text.partition(" ")[0],  # "CANCELLED by 1000"
    "folder": Path,
    "node": lambda text: "" if text in ("None assigned", "(null)") else text.partition(",")[0],
    "code": lambda text: int(number_in(text.partition(":")[0]) or 0),  # `75:0`, with a signal behind the colon
    "unix": number_in,
}


def tasks_of(shown: str) -> list[str]:
    """Return `17_2`, `17_3` and `17_5` of `17_[2-3,5%1]`, as squeue shows what waits of an array; else the job."""
    found = re.fullmatch(r"(\d+)_\[([\d,-]+)(?:%\d+)?\]", shown)
    if found is None:
        return [shown]
    spans = [span.partition("-")[::2] for span in found[2].split(",")]
    numbers = (number for first, last in spans for number in range(int(first), int(last or first) + 1))
    return [f"{found[1]}_{number}" for number in numbers]


def in_short(job_ids: Collection[str]) -> list[str]:
    """Return numbers of jobs as Slurm's commands take them: `17_[2-3,5]`, `18` of `17_2`, `17_3`, `17_5`, `18`."""
    arrays = dict[int, list[int]]()
    for array, task in sorted(map(number_of, job_ids)):
        arrays.setdefault(array, []).extend([task] if task else [])
    return [f"{array}_[{_spans(tasks)}]" if tasks else str(array) for array, tasks in arrays.items()]


def _spans(tasks: list[int]) -> str:
    firsts = [task for task in tasks if task - 1 not in tasks]
    lasts = [task for task in tasks if task + 1 not in tasks]
    both = zip(firsts, lasts, strict=True)
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in both)


def number_of(job_id: str) -> tuple[int, int]:
    """Return by what jobs are in the order of their submission: 17 and 3 of `17_3`, a task; 17 and 0 of `17+1`."""
    found = re.match(r"(\d+)(?:_(\d+))?", job_id)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)
