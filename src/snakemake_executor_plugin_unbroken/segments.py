"""Find the jobs of Snakemake that are chains: segments of a run, or jobs of a user's rule with `resources: segments`.

A rule of the second kind contains `unbroken exec`, or a training.  Its run, which may change over time, is known from
the newest note of its jobs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError

from unbroken.job.attempt import segment_of
from unbroken.job.rule_state import DONE, read_state, run_of
from unbroken.store.layout import CHAINS, RunFolder
from unbroken.store.record import has_record, is_done
from unbroken.store.run import RunSpec

RESOURCE = "segments"
# The plugin's resources for `sbatch --clusters`.
OTHER_CLUSTER = {"cluster", "clusters", "slurm_cluster"}
# How the keys of the chains of users' rules begin, as no run's name can.
RULES = ".rules"


@dataclass(frozen=True)
class Segment:
    """A segment of a run as the driver sees it, or a job of a user's rule, whose chain works for it until it ends well.

    `allowed` is how many segments the run of a user's rule may take; 0 where the segment is ours.
    """

    run: RunSpec = field(compare=False)  # its settings are a dictionary, which has no hash
    number: int
    rule: str
    wildcards: tuple[str, ...]
    allowed: int = field(default=0, compare=False)

    @property
    def is_rule(self) -> bool:
        """Return True for a job of a user's rule."""
        return self.allowed > 0

    @property
    def key(self) -> str:
        """Return the name of its chain."""
        return self.run.name

    @property
    def folder(self) -> RunFolder:
        """Return the map of the run's files."""
        return read_state(self.key).folder(self.key) if self.is_rule else RunFolder(self.key)

    @cached_property
    def record(self) -> Path:
        """Return the file that says that it is done; asked for every second, of a thousand that wait."""
        return CHAINS / self.key / DONE if self.is_rule else self.folder.record(self.number)

    @property
    def name(self) -> str:
        """Return what a line calls it."""
        if not self.is_rule:
            return f"{self.key} segment {self.number}"
        note = read_state(self.key).note
        return note.name if note else " ".join((self.rule, *self.wildcards))

    @property
    def chain_name(self) -> str:
        """Return what a line calls its chain."""
        return self.name if self.is_rule else self.key

    def has_record(self) -> bool:
        """Return True if its record is there."""
        return self.record.exists() if self.is_rule else has_record(self.folder, self.number)

    def is_done(self) -> bool:
        """Return True if its work is done and its record stands, which is made now if need be.

        A rule's job is not: Snakemake asks for it again.  LeaseError if a job that has not left yet keeps the record
        from being made.
        """
        return not self.is_rule and is_done(self.run, self.number)

    def number_at_work(self) -> int:
        """Return the number of the segment that its jobs are at."""
        return read_state(self.key).segment if self.is_rule else self.number


def work_of(job: Any) -> Segment | None:
    """Return the chain's part that a job of Snakemake is; None for plain jobs."""
    if job.is_group():
        return None
    wildcards = tuple(str(value) for value in job.wildcards)
    if (found := segment_of(job)) is not None:
        assignment, number = found
        return Segment(assignment.run, number, job.rule.name, wildcards)
    if not _is_number(allowed := job.resources.get(RESOURCE)):
        return None
    outputs = json.dumps([job.rule.name, *wildcards, *map(str, job.output)])
    key = f"{RULES}/{hashlib.sha256(outputs.encode()).hexdigest()[:16]}"
    return Segment(run_of(key), 1, job.rule.name, wildcards, allowed)


def refuse_mistakes(rules: Iterable[Any]) -> None:
    """Raise WorkflowError if jobs would go to another cluster, or if `segments` of a user's rule is no number.

    squeue and scancel ask this cluster, and would find none of those jobs.
    """
    for rule in rules:
        given = rule.resources.get(RESOURCE)
        if asked := OTHER_CLUSTER & set(rule.resources):
            found = f"unbroken: resources: found {', '.join(sorted(asked))}, allowed: none of these"
            raise WorkflowError(f"{found}; start snakemake on a login node of that cluster")
        if not given or given.is_evaluable() or "assignment" in dict(rule.params.items()):
            continue
        if given.value is not None and not _is_number(given.value):
            what = f"unbroken: rule {rule.name}: resources: {RESOURCE}: found {given.value!r}"
            raise WorkflowError(f"{what}, allowed: a whole number, 1 or more")


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
