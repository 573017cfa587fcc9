"""Which of Snakemake's jobs are segments, and what is known of each while its job is out."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from unbroken.errors import FormatError
from unbroken.runs.layout import LOGS, RunFolder
from unbroken.runs.record import read_record
from unbroken.runs.run import Run
from unbroken.segment.job import Assignment

_OUT = "unbroken"


@dataclass(frozen=True)
class Segment:
    """A segment of a run as the driver sees it."""

    run: Run = field(compare=False)  # its settings are a dictionary, which has no hash
    number: int
    rule: str
    wildcards: tuple[str, ...]

    @property
    def places(self) -> RunFolder:
        return RunFolder(self.run.name)

    @property
    def record(self) -> Path:
        return self.places.record(self.number)

    # The next two are asked for every second, of a thousand segments that wait: putting a path together costs more
    # than to look there.

    @cached_property
    def record_place(self) -> tuple[str, str]:
        """The folder of its record, and the record's name in it."""
        return str(self.record.parent), self.record.name

    @cached_property
    def lease(self) -> Path:
        return self.places.lease

    @property
    def key(self) -> str:
        """Return the name of its chain."""
        return self.run.name

    @property
    def name(self) -> str:
        return f"{self.run.name} segment {self.number}"

    @property
    def chain_name(self) -> str:
        """Return what a line calls its chain."""
        return self.run.name

    @property
    def logs(self) -> Path:
        """Return the folder of Slurm's logs of its chain."""
        return LOGS / self.run.name

    def at_work(self) -> Segment:
        """Return the segment that the chain's jobs are at, if the chain is one job of Snakemake's."""
        return self

    def pauses(self) -> tuple[str, int]:
        """Return the folder of the run and its pauses so far, if the chain is one job of Snakemake's."""
        return "", 0

    def pause_lines(self, after: int) -> list[str]:
        """Return a line for each pause after the first so many."""
        return []

    def has_begun(self) -> bool:
        """Return True if the run has, or may have, a folder."""
        return True

    def has_record(self) -> bool:
        """Return True if the record can be read and names this segment.

        Also if a newer unbroken wrote it, which was installed while this driver is at work: the next job reads it, or
        says that it cannot.
        """
        try:
            record = read_record(self.record)
        except FormatError:
            return True
        return record is not None and (record.run, record.segment) == (self.run.name, self.number)


def segment_of(job: Any) -> Segment | None:
    """The segment that a job of Snakemake is; None for jobs of other rules."""
    if job.is_group():
        return None
    assignment = job.params.get("assignment")
    number = job.wildcards.get("segment", "")
    if not isinstance(assignment, Assignment) or not str(number).isdecimal():
        return None
    wildcards = tuple(str(value) for value in job.wildcards)
    segment = Segment(assignment.run, int(number), job.rule.name, wildcards)
    # A workflow may import unbroken under a prefix of its own; its records then stand where we do not look.
    return segment if [str(path) for path in job.output] == [str(segment.record)] else None


@dataclass(eq=False)
class Out:
    """A segment that a job of its run does, or will do; `job_id` is the job or array that was there first."""

    segment: Segment
    job_id: str
    # Looks in a row in which Slurm said that the job has ended: it may only be about to be queued again.
    ended: list[str] = field(default_factory=list)
    told_waiting: str = ""
    told_away: str = ""
    told_pauses: tuple[str, int] = ("", 0)
    heard: float = 0.0
    first_heard: float | None = None
    claim: tuple[int, int] = (0, 0)  # its number, and when its file was changed
    has_left: bool = False
    is_silent: bool = False
    not_before: float = 0.0


def out_of(info: SubmittedJobInfo) -> Out | None:
    """What is known of a job that is out, which Snakemake keeps for us in `aux`; None for jobs of other rules."""
    return (info.aux or {}).get(_OUT)


def pause_lines(out: Out) -> list[str]:
    """Return a line for each pause since the last call; for the last one alone where the run is another one."""
    told, now = out.told_pauses, out.segment.pauses()
    if now == told:
        return []
    out.told_pauses = now
    with suppress(OSError, FormatError):
        return out.segment.pause_lines(told[1] if now[0] == told[0] else now[1] - 1)
    return []


def keep_out(info: SubmittedJobInfo, out: Out) -> None:
    """Lets `out_of` find it."""
    info.aux = {**(info.aux or {}), _OUT: out}
