"""Describe the end of an attempt at a segment, by one type from the segment's process to job, history and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from sys import intern
from typing import Any, Self

from unbroken.slurm.job import EndState
from unbroken.store.times import NO_TIMES, Times, parse_times


class EndKind(StrEnum):
    """Name the end of an attempt; only `FINISHED` and `PAUSED` settle its segment."""

    FINISHED = "finished"  # the goal is reached
    PAUSED = "paused"  # its time is up and there is a newer checkpoint: the next segment resumes from it
    INTERRUPTED = "interrupted"  # asked to leave early; its work is saved, the same segment resumes
    FAILED = "failed"  # crashed, or neither finished nor left a newer checkpoint
    DIED = "died"  # the job itself was killed; its successor records it
    # Its work never began:
    REFUSED = "refused"  # the same attempt again brings the same
    UNAVAILABLE = "unavailable"  # a disk or a file is missing, which may pass by itself
    NEVER_RAN = "never ran"  # Slurm says that the job is over, and nothing of unbroken ran in it or could leave a line
    HELD = "held"  # another job does this run's work, or this one was asked to leave while it waited
    STOPPED = "stopped"  # the run had stopped before; no attempt was made

    @property
    def settles(self) -> bool:
        """Return True if the next segment follows."""
        return self in _SETTLING

    @property
    def is_before_work(self) -> bool:
        """Return True if the work of the attempt never began."""
        return self in _BEFORE_WORK

    @property
    def is_failure(self) -> bool:
        """Return True if the attempt neither settled its segment nor was asked to leave."""
        return not self.settles and self is not EndKind.INTERRUPTED


# What to do before a new start, where nothing more is known.
FIX = "fix the cause"
_SETTLING = frozenset({EndKind.FINISHED, EndKind.PAUSED})
_BEFORE_WORK = frozenset({EndKind.REFUSED, EndKind.UNAVAILABLE, EndKind.NEVER_RAN, EndKind.HELD, EndKind.STOPPED})


class EndCause(StrEnum):
    """Why an attempt ended, where unbroken knows it; where two are true, the one that stands first here."""

    DIVERGED = "diverged"  # the computation itself went wrong: the same again brings the same
    NO_RESULTS = "results not written"  # the goal is reached, and making `final/` failed
    KILLED_STOPPING = "killed while stopping"  # its program was asked to stop and had not saved when it was killed
    PARTIAL = "short job"  # its job had less time than a segment, and has used it
    STORAGE = "storage"  # the disk was full or did not answer, which says nothing against the checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEnd:
    """Describe the end of an attempt.  Progress is in the run's unit; `job_state` is Slurm's word for its job's end."""

    kind: EndKind
    message: str = ""  # what was found
    log: str = ""  # where to read on; empty if unknown, or there is nothing
    todo: str = ""  # what to do before a new start, where that is more than to fix the cause
    cause: EndCause | None = None
    job_state: EndState | None = None  # OUT_OF_MEMORY also by the kernel's word
    from_checkpoint: str | None = None
    to_checkpoint: str | None = None
    progress_from: float = 0.0
    progress_to: float = 0.0
    unit: str = ""
    times: Times = NO_TIMES
    killed_after_seconds: float | None = None  # since the program was asked to stop; `KILLED_STOPPING` alone has it

    @property
    def has_advanced(self) -> bool:
        """Return True if it left a new checkpoint."""
        return self.to_checkpoint is not None and self.to_checkpoint != self.from_checkpoint

    @property
    def ran_out_of_memory(self) -> bool:
        """Return True if it was ended because it was out of memory."""
        return self.job_state is EndState.OUT_OF_MEMORY

    @property
    def was_killed_stopping(self) -> bool:
        """Return True if its program, or its job, was killed before it had saved what it was asked to save."""
        return self.cause is EndCause.KILLED_STOPPING

    @property
    def gets_more_margin(self) -> bool:
        """Return True if it was killed while stopping and the next attempt is asked earlier."""
        return self.was_killed_stopping and self.times.next_margin_seconds is not None

    @property
    def why(self) -> str:
        """Return what is known beyond its kind, in Slurm's words or ours; empty if nothing is."""
        return self.job_state or self.cause or ""

    def line(self, log: object = "") -> str:
        """Return what was found and where to read on; `log` is where, if the end itself does not say it."""
        where = self.log or log
        return f"{self.message}; read {where}" if where else self.message

    @property
    def goes_on(self) -> str:
        """Return what was found of an attempt that was asked to leave, and how it resumes."""
        return self.message if self.cause is EndCause.PARTIAL else f"{self.message}; start again and it goes on"

    def advice(self, log: object = "", again: str = "start again") -> str:
        """Return the line and what to do about it; `again` is how to start."""
        return f"{self.line(log)}; {self.todo or FIX}, then {again}"

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON has them."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"times": self.times.to_json()}

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Self:
        """Return what `to_json` wrote, later keys aside; ValueError, TypeError or KeyError.  Equal words are shared."""
        known: dict[str, Any] = {
            name: intern(value) if type(value) is str else value
            for name, value in data.items()
            if name in cls.__dataclass_fields__
        }
        cause, state = data.get("cause"), data.get("job_state")
        known |= {"kind": EndKind(data["kind"]), "times": parse_times(data.get("times", {}))}
        known |= {"cause": EndCause(cause) if cause else None, "job_state": EndState(state) if state else None}
        return cls(**known)
