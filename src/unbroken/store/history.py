"""Define how an attempt at a segment ends, one type from its process to job and report, and keep a run's history.

The history has a line of JSON for each attempt, appended by the owner of the lease.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from sys import intern
from typing import Any, Self

from unbroken.slurm.job import EndState
from unbroken.store.layout import Format
from unbroken.store.times import NO_TIMES, JobStart, Times, parse_times
from unbroken.system import fs
from unbroken.system.clock import unix_seconds

FORMAT = Format(2)  # of each line


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


# What a program that a KILL ended leaves, as its parent sees it and as a shell, or srun, says it.
KILLED_CODES = frozenset({-signal.SIGKILL, 128 + signal.SIGKILL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(SegmentEnd):
    """Say how one job's try at a segment ended, and which, where and when it was.  Times in seconds."""

    token: int
    segment: int
    driver_attempt: int = 1
    started_utc: str
    ended_utc: str
    work_seconds: float = 0.0
    saves: int = 0
    save_seconds: float = 0.0
    stop_seconds: float | None = None
    unused_seconds: float | None = None
    exit_code: int | None = None
    host: str = ""
    pid: int = 0
    slurm_job: str = ""
    slurm_node: str = ""
    slurm_cluster: str = ""
    slurm_partition: str = ""  # empty also of one that was killed
    mem_mb: int = 0  # what the config asked for
    start: str = ""  # the start of snakemake that it belongs to

    @classmethod
    def of(cls, end: SegmentEnd, **job: Any) -> Attempt:
        """Return the attempt that ended so; `job` are its own fields."""
        return cls(**{name: getattr(end, name) for name in SegmentEnd.__dataclass_fields__}, **job)

    @property
    def job_without_end(self) -> JobStart | None:
        """Return the start of its job if the end of that one is not known yet; None outside Slurm."""
        if not self.slurm_job or self.times.job_ended is not None:
            return None
        return self.slurm_job, unix_seconds(self.started_utc), self.slurm_cluster

    @property
    def has_stopped_by_itself(self) -> bool:
        """Return True if its program was asked to stop, saved and left; old lines know a kill by its code alone."""
        is_killed = self.was_killed_stopping or self.exit_code in KILLED_CODES
        return self.stop_seconds is not None and not self.kind.is_failure and not is_killed


# Enough for all that is said of a run but what it cost in all.
RECENT = 1000


class History:
    """The file `results/<run>/history.jsonl`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def attempts(self, newest: int | None = None) -> list[Attempt]:
        """Return all attempts, or so many of the newest lines, oldest first.

        A line torn by a kill is passed over, FormatError at one of another format.
        """
        with closing(self._lines()) as lines:
            chosen = lines if newest is None else deque(lines, newest)
            return [attempt for source, line in chosen if (attempt := _parsed(source, line)) is not None]

    def next_segment(self) -> int:
        """Return the number after the last segment that has paused or finished."""
        return 1 + max((attempt.segment for attempt in self.attempts() if attempt.kind.settles), default=0)

    def append(self, attempt: Attempt) -> None:
        """Add one line and flush it; if the process dies inside, readers pass the torn line over."""
        text = FORMAT.text(attempt.to_json(), indent=None)
        with fs.storage_errors(self.path, len(text)):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                fs.write_all(descriptor, _missing_newline(descriptor) + text)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _lines(self) -> Generator[tuple[str, str], None, None]:
        with suppress(FileNotFoundError), self.path.open(errors="replace") as file:
            for number, line in enumerate(file, 1):
                yield f"{self.path}:{number}", line


def _parsed(source: str, line: str) -> Attempt | None:
    try:
        return Attempt.parse(FORMAT.parse(line, source))
    except (ValueError, TypeError, KeyError):
        return None


def _missing_newline(descriptor: int) -> str:
    """Return a newline if a kill left half a line, so that the next one is not glued to it; else ''."""
    size = os.fstat(descriptor).st_size
    return "\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else ""
