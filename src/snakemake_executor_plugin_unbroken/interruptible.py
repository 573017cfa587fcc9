"""Jobs of anybody's rules with `resources: segments`: what `unbroken exec`, or a training, has noted, what follows.

Inside the job Snakemake turns the exit code 85 into 1 and removes the rule's outputs, and Slurm says FAILED: so the
note names the run, and the run's history says how the job ended.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError

from snakemake_executor_plugin_unbroken.job_outcome import TAKEN_AWAY, Follows, JobOutcome
from snakemake_executor_plugin_unbroken.segments import Out, Segment, segment_of
from unbroken.runs.exec_note import ATTEMPTS_WITHOUT_PROGRESS, REFUSED, ExecNote, read_note
from unbroken.runs.history import Attempt, History
from unbroken.runs.layout import EXEC_NOTES, NOTES, RunFolder
from unbroken.runs.outcome import Outcome
from unbroken.runs.progress import amount
from unbroken.runs.run import Run
from unbroken.slurm.job_comment import comment_of, is_comment

RESOURCE = "segments"
# Below `.snakemake/unbroken`, where no run's name can stand: the submissions of these jobs.
SUBMISSIONS = ".exec"
# The second alarm, as in a profile's site.yaml; not in the first half of a job, whose work would end by it.
WARN_SECONDS = 90
EARLY_SECONDS = 60


@dataclass(frozen=True)
class Interruptible(Segment):
    """A job of somebody's rule; its run, which may be several over time, is known from the job's newest note."""

    allowed: int = field(compare=False)
    note: ExecNote | None = field(compare=False, default=None)

    @property
    def places(self) -> RunFolder:
        if self.note is None:
            return RunFolder(self.run.name, Path(), NOTES / SUBMISSIONS / "no note yet")
        return RunFolder(self.note.name, Path(), Path(self.note.store))

    @property
    def name(self) -> str:
        return self.note.name if self.note else " ".join((self.rule, *self.wildcards))

    def may_be(self, comment: str) -> bool:
        return not is_comment(comment) or comment == self._comment

    def is_named_by(self, comment: str) -> bool:
        """Several wildcards, or one with a `/`, may read the same as those of another job."""
        is_plain = len(self.wildcards) < 2 and "/" not in "".join(self.wildcards)
        return is_plain and comment == self._comment

    @property
    def _comment(self) -> str:
        return comment_of(self.rule, self.wildcards) if self.wildcards else f"rule_{self.rule}"


def interruptible_of(job: Any) -> Interruptible | None:
    """The job as one that may be handed over again; None for segments of ours and for plain jobs."""
    if job.is_group() or segment_of(job) is not None:
        return None
    allowed = job.resources.get(RESOURCE)
    if not _is_number(allowed):
        return None
    wildcards = tuple(str(value) for value in job.wildcards)
    outputs = json.dumps([job.rule.name, *wildcards, *map(str, job.output)])
    key = f"{SUBMISSIONS}/{hashlib.sha256(outputs.encode()).hexdigest()[:16]}"
    return Interruptible(_run(key), 1, job.rule.name, wildcards, allowed)


def work_of(job: Any) -> Segment | None:
    """The segment, or the interruptible job, that a job of Snakemake is; None for plain jobs."""
    return segment_of(job) or interruptible_of(job)


def refuse_mistakes(rules: Iterable[Any], has_driver: bool) -> None:
    """WorkflowError if `segments` is no number, or nobody would hand such a job over again."""
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
        if not has_driver:
            raise WorkflowError(
                f"unbroken: rule {rule.name}: found resources: {RESOURCE}, which needs a driver that waits; "
                "start snakemake --profile slurm, without --immediate-submit"
            )


def newest_notes(job_ids: Sequence[str]) -> dict[str, ExecNote]:
    """What these jobs have noted, of each its last start; a folder is listed, since a file may be long in coming."""
    try:
        names = os.listdir(EXEC_NOTES) if job_ids else []
    except OSError:  # no job has noted anything yet, or the file server is away for a moment
        return {}
    newest: dict[str, tuple[int, str]] = {}
    for name in names:
        job_id, _, restart = name.removesuffix(".json").rpartition(".")
        if job_id in job_ids and restart.isdecimal():
            newest[job_id] = max(newest.get(job_id, (-1, "")), (int(restart), name))
    found = {job_id: read_note(EXEC_NOTES / name) for job_id, (_, name) in newest.items()}
    return {job_id: note for job_id, note in found.items() if note is not None}


def judged(out: Out, work: Interruptible) -> Out:
    """For the policy: the segment that the job was at."""
    return replace(out, segment=replace(work, number=max(1, work.note.segment if work.note else 1)))


def early_signal(runtime_minutes: object) -> str:
    """The words for sbatch that let Slurm warn the job; what the rule says in `slurm_extra` comes later and counts."""
    is_long = isinstance(runtime_minutes, int | float) and runtime_minutes * 30 - EARLY_SECONDS >= WARN_SECONDS
    return f" --signal=URG@{WARN_SECONDS}" if is_long else ""


@dataclass(frozen=True)
class Paused:
    """The pause by which a job has ended, and how many its run has behind it."""

    segments: int
    attempt: Attempt


def paused_by(work: Interruptible, job_id: str) -> Paused | None:
    """None if the job did not end by a pause; OSError while the file server is away."""
    history = History(work.places.history).attempts()
    own = [attempt for attempt in history if attempt.slurm_job == job_id]
    if not own or own[-1].outcome is not Outcome.PAUSED:
        return None
    return Paused(sum(attempt.outcome is Outcome.PAUSED for attempt in history), own[-1])


def of_note(work: Interruptible, job_id: str, state: str, paused: Paused | None, before: int) -> JobOutcome | None:
    """What follows the end of a job, by its note and the pause; pure.

    None where the history and the policy say it.  `before` are the pauses that were known when it was submitted.
    """
    ended = f"{work.name}: job {job_id} ended as {state}"
    if work.note is None:
        return JobOutcome(Follows.RETRY, f"{ended}; no segment of `unbroken exec`, or of a training, began in it")
    if state == "CANCELLED":
        return None
    if work.note.outcome == REFUSED:
        return JobOutcome(Follows.STOP, f"job {job_id}: {work.note.reason}")
    if work.note.outcome == Outcome.FINISHED.value:
        if state in TAKEN_AWAY - {"TIMEOUT", "DEADLINE"}:
            return JobOutcome(Follows.AGAIN, f"{ended} after its program was done; its results are put back")
        return JobOutcome(Follows.RETRY, f"{ended} although its program was done: the rest of the rule failed")
    if paused is None:
        return None
    if paused.segments <= before:
        return JobOutcome(Follows.RETRY, f"{ended} with no more segments than before; has the rule --anew in it?")
    done = f"{amount(paused.attempt.progress_to)} {paused.attempt.unit}"
    if paused.segments >= work.allowed:
        used = f"its {work.allowed} segments are used up, with {done} done"
        todo = f"raise `segments` of rule {work.rule}, then start snakemake again"
        return JobOutcome(Follows.STOP, f"{work.name}: {used}; to go on, {todo}")
    return JobOutcome(Follows.AGAIN, f"{work.name}: segment {paused.segments} of {work.allowed} paused, {done} done")


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
