"""Which of Snakemake's jobs are chains: a segment of a run, or the job of a user's own rule with `resources: segments`.

In a rule of the second kind is `unbroken exec`, or a training.  Its run, which may be several over time, is known from
the newest note of its jobs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError

from unbroken.job.rule_state import DONE, read_state, run_of
from unbroken.runs.layout import CHAINS, RunFolder
from unbroken.runs.run import Run
from unbroken.segment.job import Assignment
from unbroken.segment.settled import has_record, is_done

RESOURCE = "segments"
# How the keys of the chains of users' rules begin, as no run's name can.
RULES = ".rules"


@dataclass(frozen=True)
class Segment:
    """A segment of a run as the driver sees it."""

    run: Run = field(compare=False)  # its settings are a dictionary, which has no hash
    number: int
    rule: str
    wildcards: tuple[str, ...]

    @property
    def key(self) -> str:
        """Return the name of its chain."""
        return self.run.name

    @property
    def places(self) -> RunFolder:
        """Return the map of the run's files."""
        return RunFolder(self.run.name)

    @property
    def record(self) -> Path:
        """Return the file that says how it ended."""
        return self.places.record(self.number)

    @cached_property
    def record_place(self) -> tuple[str, str]:
        """Return the folder of its record, and the record's name in it.

        Asked for every second, of a thousand that wait: to put a path together costs more than to look there.
        """
        return str(self.record.parent), self.record.name

    @property
    def name(self) -> str:
        """Return what a line calls it."""
        return f"{self.run.name} segment {self.number}"

    @property
    def chain_name(self) -> str:
        """Return what a line calls its chain."""
        return self.run.name

    def has_record(self) -> bool:
        """Return True if its record is there."""
        return has_record(self.places, self.number)

    def is_done(self, log: Callable[[str], None]) -> bool:
        """Return True if its work is done and its record stands, which is made now if need be.

        LeaseError if a job that has not left yet keeps it from being made.
        """
        return is_done(self.run, self.number, log)

    def number_at_work(self) -> int:
        """Return the number of the segment that its jobs are at."""
        return self.number


@dataclass(frozen=True)
class Interruptible(Segment):
    """A job of a user's rule, whose chain works for it until it ends well."""

    allowed: int = field(compare=False)

    @property
    def places(self) -> RunFolder:
        return read_state(self.key).folder(self.key)

    @property
    def record(self) -> Path:
        return CHAINS / self.key / DONE

    @property
    def name(self) -> str:
        note = read_state(self.key).note
        return note.name if note else " ".join((self.rule, *self.wildcards))

    @property
    def chain_name(self) -> str:
        return self.name

    def has_record(self) -> bool:
        return self.record.exists()

    def is_done(self, log: Callable[[str], None]) -> bool:
        return False  # Snakemake asks for it again

    def number_at_work(self) -> int:
        return read_state(self.key).segment


def work_of(job: Any) -> Segment | None:
    """Return the chain's part that a job of Snakemake is; None for plain jobs."""
    return None if job.is_group() else _segment_of(job) or _interruptible_of(job)


def _segment_of(job: Any) -> Segment | None:
    assignment = job.params.get("assignment")
    number = job.wildcards.get("segment", "")
    if not isinstance(assignment, Assignment) or not str(number).isdecimal():
        return None
    segment = Segment(assignment.run, int(number), job.rule.name, _wildcards(job))
    # A workflow may import unbroken under a prefix of its own; its records then stand where we do not look.
    return segment if [str(path) for path in job.output] == [str(segment.record)] else None


def _interruptible_of(job: Any) -> Interruptible | None:
    allowed = job.resources.get(RESOURCE)
    if not _is_number(allowed):
        return None
    outputs = json.dumps([job.rule.name, *_wildcards(job), *map(str, job.output)])
    key = f"{RULES}/{hashlib.sha256(outputs.encode()).hexdigest()[:16]}"
    return Interruptible(run_of(key), 1, job.rule.name, _wildcards(job), allowed)


def _wildcards(job: Any) -> tuple[str, ...]:
    return tuple(str(value) for value in job.wildcards)


def refuse_mistakes(rules: Iterable[Any]) -> None:
    """Raise WorkflowError if `segments` of a rule is no number."""
    for rule in rules:
        if RESOURCE not in rule.resources or "assignment" in dict(rule.params.items()):
            continue
        found = rule.resources[RESOURCE]
        if not found.is_evaluable() and found.value is not None and not _is_number(found.value):
            what = f"unbroken: rule {rule.name}: resources: {RESOURCE}: found {found.value!r}"
            raise WorkflowError(f"{what}, allowed: a whole number, 1 or more")


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
