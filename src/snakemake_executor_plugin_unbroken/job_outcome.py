"""What follows when a segment's job is gone and there is no record: by Slurm's word, the history and the policy."""

from __future__ import annotations

from dataclasses import dataclass

from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.runs.history import Attempt
from unbroken.runs.policy import Next, NextAction
from unbroken.runs.segment_end import EndKind
from unbroken.slurm.job_end import EndState

# Slurm took the job away; the segment did nothing wrong.
TAKEN_AWAY = frozenset(ending.value for ending in EndState if ending.is_interruption)
UNKNOWN = "UNKNOWN"
# It hangs in its end (unbroken.slurm.queue.hangs).
HANGS = "COMPLETING"
RESUME = NextAction(Next.RESUME)


@dataclass(frozen=True)
class Evidence:
    """What a job without a record has left behind."""

    state: str
    attempt: Attempt | None  # its line in the history
    action: NextAction = RESUME  # by the policy
    is_held: bool = False  # it left because another job does the run's work
    has_tried: bool = True  # else the run had stopped before


def verdict(segment: Segment, job_id: str, evidence: Evidence) -> NextAction:
    """What follows the end of a job; pure."""
    start = f"{segment.name}: job {job_id} ended as {evidence.state}"
    if evidence.state == "CANCELLED":
        return NextAction(Next.STOP, f"{start}; this run stops, the others go on; to go on, start snakemake again")
    if evidence.is_held:
        return NextAction(Next.WAIT, f"{start}: another job holds the run; the same segment goes on after it")
    if evidence.action.stops:
        return NextAction(Next.STOP, f"{start}; this run stops: {evidence.action.why}")
    if evidence.state == HANGS:
        hangs = f"{segment.name}: job {job_id} has been COMPLETING for minutes (its node or its epilog hangs)"
        return NextAction(Next.RESUME, f"{hangs}; the same segment goes on without it")
    if _follows(evidence) is Next.RETRY:
        log = segment.places.log(segment.number)
        why = f": {evidence.attempt.line()}" if evidence.attempt else f" and left no record; log: {log}"
        return NextAction(Next.RETRY, start + why)
    if evidence.state == "COMPLETED" and evidence.attempt:  # it had less time than a segment
        return NextAction(Next.RESUME, f"{segment.name}: job {job_id}: {evidence.attempt.line()}")
    if evidence.attempt is not None and evidence.attempt.gets_more_margin:
        return NextAction(Next.RESUME, f"{start}, which uses up no retry: {evidence.attempt.line()}")
    return NextAction(Next.RESUME, f"{start}, no failure; the same segment goes on from the newest checkpoint")


def _follows(evidence: Evidence) -> Next:
    if evidence.state in TAKEN_AWAY or evidence.state == UNKNOWN or not evidence.has_tried:
        return Next.RESUME  # where accounting lost the job, the policy is what ends it
    attempt = evidence.attempt
    if evidence.state == "OUT_OF_MEMORY" or attempt is None:
        return Next.RETRY
    if attempt.gets_more_margin:
        return Next.RESUME  # as the policy counts, which ends it once the margin cannot grow
    if attempt.kind is EndKind.FAILED:
        return Next.RETRY
    return Next.RETRY if attempt.kind is EndKind.DIED and not attempt.has_advanced else Next.RESUME
