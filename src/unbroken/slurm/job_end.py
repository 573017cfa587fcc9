"""How a job of Slurm ended: asked of the controller, then of accounting where there is one.

A job that Slurm starts again keeps its number, so every question names a time at which the start in question ran.
Measured with Slurm 22.05: `squeue --states=all` shows the present start only; `sacct --duplicates` a row for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from unbroken.slurm.cluster import may_ask_here
from unbroken.slurm.states import ALIVE, STARTED
from unbroken.slurm.tables import table

# Asked from inside a segment, whose time is the user's.
PATIENCE_SECONDS = 10.0
# Times are whole seconds, taken on two machines.
SLACK_SECONDS = 5.0


class EndState(StrEnum):
    """Slurm's own words [man sacct: JOB STATE CODES]; what is not here counts as FAILED."""

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
        """True if the machine was taken away and the program is not to blame."""
        return self in _INTERRUPTIONS

    @property
    def in_words(self) -> str:
        return _WORDS[self]


_INTERRUPTIONS = {
    EndState.TIMEOUT,
    EndState.PREEMPTED,
    EndState.REQUEUED,
    EndState.NODE_FAIL,
    EndState.BOOT_FAIL,
    EndState.DEADLINE,
}
# The machine was taken away, which says nothing about the program.  TIMEOUT is not among them: a program that brings no
# step forward in all of its time never will.
NOT_TO_BLAME = {EndState.PREEMPTED, EndState.REQUEUED, EndState.NODE_FAIL, EndState.BOOT_FAIL}
_WORDS = {
    EndState.COMPLETED: "Slurm says that the job completed",
    EndState.FAILED: "Slurm says that the job failed",
    EndState.TIMEOUT: "Slurm ended the job at its time limit",
    EndState.DEADLINE: "Slurm ended the job at its deadline (sbatch --deadline)",
    EndState.PREEMPTED: "Slurm preempted the job",
    EndState.REQUEUED: "Slurm requeued the job",
    EndState.NODE_FAIL: "the node was lost",
    EndState.BOOT_FAIL: "the node did not boot",
    EndState.OUT_OF_MEMORY: "the job ran out of memory",
    EndState.CANCELLED: "the job was cancelled",
    EndState.UNKNOWN: "Slurm does not know how the job ended",
}


@dataclass(frozen=True)
class JobEnd:
    """How one start of a job ended; `who` is a user's number after a cancellation that names it."""

    ending: EndState
    is_certain: bool  # false if processes of it may live on, on a node that Slurm does not reach
    who: str = ""
    at_unix: float | None = field(default=None, compare=False)  # when it left its nodes, where Slurm says it


def ended(job_id: str, ran_at_unix: float, cluster: str = "") -> JobEnd | None:
    """How the start of the job ended that ran at that time; None while it lives, or if nobody knows.

    Nobody knows it of a job of another cluster; `cluster` is empty where it was not noted.
    """
    if not may_ask_here(cluster):
        return None
    state, start, end = _in_queue(job_id)
    if state in STARTED and (start is None or start <= ran_at_unix + SLACK_SECONDS):
        return None
    if state and state not in ALIVE:
        return _ended(state, end)
    # Either the controller has forgotten the job, or it has started it again since.
    return _in_accounting(job_id, ran_at_unix) or (JobEnd(EndState.REQUEUED, is_certain=False) if state else None)


def end_of(job_id: str) -> float | None:
    """When Slurm will end a running job (Unix seconds), as it stands now; None if it does not say.

    A heterogeneous job has a line for each of its components, and the first to end decides.
    """
    rows = table("squeue", "--jobs", job_id, columns=("%e",), patience_seconds=PATIENCE_SECONDS) or []
    return min((float(end) for (end,) in rows if end.isdecimal()), default=None)


def _in_queue(job_id: str) -> tuple[str, float | None, float | None]:
    """The state of a job, since when it runs, and its end; empty if the controller does not know it."""
    words = ("squeue", "--states=all", "--jobs", job_id)
    rows = table(*words, columns=("%T", "%S", "%e"), patience_seconds=PATIENCE_SECONDS)
    state, start, end = rows[0] if rows else ("", "", "")
    return state, _unix(start), _unix(end)


def _in_accounting(job_id: str, ran_at_unix: float) -> JobEnd | None:
    words = ("sacct", "--duplicates", "--allocations", "--jobs", job_id)
    rows = table(*words, columns=("State", "End"), patience_seconds=PATIENCE_SECONDS)
    ends = [(state, _unix(end)) for state, end in rows or []]
    over = [(state, end) for state, end in ends if end is not None and end >= ran_at_unix - SLACK_SECONDS]
    return _ended(*over[0]) if over else None


def _unix(text: str) -> float | None:
    return float(text) if text.isdecimal() else None


def _ended(state: str, at_unix: float | None) -> JobEnd:
    """From `TIMEOUT` or `CANCELLED by 1000`."""
    word, _, rest = state.partition(" ")
    ending = EndState.of(word)
    is_certain = ending not in {EndState.NODE_FAIL, EndState.BOOT_FAIL}
    return JobEnd(ending, is_certain, rest.removeprefix("by ").strip(), at_unix)
