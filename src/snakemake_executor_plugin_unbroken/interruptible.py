"""Jobs of a user's own rules with `resources: segments`: chains, with `unbroken exec`, or a training, in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError

from snakemake_executor_plugin_unbroken.segments import Segment, segment_of
from unbroken.job.rule_state import DONE, read_state
from unbroken.runs.exec_note import ATTEMPTS_WITHOUT_PROGRESS
from unbroken.runs.history import History
from unbroken.runs.layout import CHAINS, LOGS, RunFolder
from unbroken.runs.progress import amount
from unbroken.runs.run import Run
from unbroken.runs.segment_end import EndKind

RESOURCE = "segments"
# How the keys of these chains begin, as no run's name can.
RULES = ".rules"
# The second alarm, as in a profile's site.yaml; not in the first half of a job, whose work would end by it.
WARN_SECONDS = 90
EARLY_SECONDS = 60


@dataclass(frozen=True)
class Interruptible(Segment):
    """A job of somebody's rule; its run, which may be several over time, is known from the job's newest note."""

    allowed: int = field(compare=False)

    @property
    def key(self) -> str:
        """Return the name of its chain."""
        return self.run.name

    @property
    def places(self) -> RunFolder:
        """Return the map of the files of the run that its jobs work for, as far as one has said it."""
        return read_state(self.key).folder(self.key)

    @property
    def record(self) -> Path:
        """Return the file by which its jobs say that it has ended well."""
        return CHAINS / self.key / DONE

    @property
    def lease(self) -> Path:  # its run is known when a job has begun
        return self.places.lease

    @property
    def chain_name(self) -> str:
        return self.name

    @property
    def logs(self) -> Path:
        return LOGS / "rules" / f"{self.rule}-{self.key.rpartition('/')[2]}"

    def at_work(self) -> Segment:
        return replace(self, number=read_state(self.key).segment)

    def pauses(self) -> tuple[str, int]:
        state = read_state(self.key)
        return state.store, state.pauses

    def pause_lines(self, after: int) -> list[str]:
        history = History(self.places.history).attempts()
        paused = [attempt for attempt in history if attempt.kind is EndKind.PAUSED]
        return [
            f"{self.name}: segment {number} of {self.allowed} paused, {amount(attempt.progress_to)} {attempt.unit} done"
            for number, attempt in enumerate(paused, 1)
            if number > after
        ]

    @property
    def name(self) -> str:
        note = read_state(self.key).note
        return note.name if note else " ".join((self.rule, *self.wildcards))

    def has_begun(self) -> bool:
        return read_state(self.key).note is not None

    def has_record(self) -> bool:
        return self.record.exists()


def interruptible_of(job: Any) -> Interruptible | None:
    """The job as one that may be handed over again; None for segments of ours and for plain jobs."""
    if job.is_group() or segment_of(job) is not None:
        return None
    allowed = job.resources.get(RESOURCE)
    if not _is_number(allowed):
        return None
    wildcards = tuple(str(value) for value in job.wildcards)
    outputs = json.dumps([job.rule.name, *wildcards, *map(str, job.output)])
    key = f"{RULES}/{hashlib.sha256(outputs.encode()).hexdigest()[:16]}"
    return Interruptible(_run(key), 1, job.rule.name, wildcards, allowed)


def work_of(job: Any) -> Segment | None:
    """The segment, or the interruptible job, that a job of Snakemake is; None for plain jobs."""
    return segment_of(job) or interruptible_of(job)


def refuse_mistakes(rules: Iterable[Any]) -> None:
    """WorkflowError if `segments` of a rule is no number."""
    for rule in rules:
        if RESOURCE not in rule.resources or "assignment" in dict(rule.params.items()):
            continue
        found = rule.resources[RESOURCE]
        if not found.is_evaluable() and found.value is None:  # unset
            continue
        if not found.is_evaluable() and not _is_number(found.value):
            raise WorkflowError(
                f"unbroken: rule {rule.name}: resources: {RESOURCE}: found {found.value!r}, "
                "allowed: a whole number, 1 or more"
            )


def early_signal(runtime_minutes: object) -> list[str]:
    """Return the words for sbatch that let Slurm warn the job; `slurm_extra` of the rule comes later and counts."""
    is_long = isinstance(runtime_minutes, int | float) and runtime_minutes * 30 - EARLY_SECONDS >= WARN_SECONDS
    return [f"--signal=URG@{WARN_SECONDS}"] if is_long else []


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _run(name: str) -> Run:
    """What the policy asks of a run; its jobs are what the rule says."""
    return Run(
        name=name, engine="exec", segments=0, segment_minutes=0, place="", note="", threads=1, tasks=1, nodes=None,
        mem_mb=0, memory_growth=1.0, gpus=0, partition=None, account=None, qos=None, constraint=None, gpu_type=None,
        slurm_extra=(), keep=2, milestone_every=0, save_minutes=0, mtbf_hours=None, stall_minutes=None,
        first_margin_seconds=None, attempts_without_progress=ATTEMPTS_WITHOUT_PROGRESS, modules=(), enter=(),
        settings={},
    )  # fmt: skip
