"""What follows when a segment's job is gone and there is no record: by Slurm's word, the history and the policy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from snakemake_executor_plugin_unbroken.segments import Segment
from unbroken.runs.history import Attempt
from unbroken.runs.outcome import Outcome
from unbroken.slurm.job_end import EndState

# Slurm took the job away; the segment did nothing wrong.
TAKEN_AWAY = frozenset(ending.value for ending in EndState if ending.is_interruption)
UNKNOWN = "UNKNOWN"


class Follows(Enum):
    """What follows."""

    AGAIN = "the same segment goes on"  # no retry is used up
    AFTER = "the same segment goes on after the job that holds the run"  # nor here
    RETRY = "it failed"  # Snakemake decides, by `retries`
    STOP = "the run stops"  # no retry is made


@dataclass(frozen=True)
class JobOutcome:
    """What follows and, in one line, why."""

    follows: Follows
    line: str


@dataclass(frozen=True)
class Evidence:
    """What a job without a record has left behind."""

    state: str
    attempt: Attempt | None  # its line in the history
    why_stop: str = ""  # why no further attempt is made, in the words of the policy; empty if one is made
    is_held: bool = False  # it left because another job does the run's work


def verdict(segment: Segment, job_id: str, evidence: Evidence) -> JobOutcome:
    """What follows the end of a job; pure."""
    start = f"{segment.name}: job {job_id} ended as {evidence.state}"
    if evidence.state == "CANCELLED":
        return JobOutcome(Follows.STOP, f"{start}; this run stops, the others go on; to go on, start snakemake again")
    if evidence.is_held:
        return JobOutcome(Follows.AFTER, f"{start}: another job holds the run; the same segment goes on after it")
    if evidence.why_stop:
        return JobOutcome(Follows.STOP, f"{start}; this run stops: {evidence.why_stop}")
    if _follows(evidence) is Follows.RETRY:
        log = segment.places.log(segment.number)
        why = f": {evidence.attempt.message}" if evidence.attempt else f" and left no record; log: {log}"
        return JobOutcome(Follows.RETRY, start + why)
    if evidence.state == "COMPLETED" and evidence.attempt:  # it had less time than a segment
        return JobOutcome(Follows.AGAIN, f"{segment.name}: job {job_id}: {evidence.attempt.message}")
    if evidence.attempt is not None and evidence.attempt.gets_more_margin:
        return JobOutcome(Follows.AGAIN, f"{start}, which uses up no retry: {evidence.attempt.message}")
    return JobOutcome(Follows.AGAIN, f"{start}, no failure; the same segment goes on from the newest checkpoint")


def _follows(evidence: Evidence) -> Follows:
    if evidence.state in TAKEN_AWAY or evidence.state == UNKNOWN:
        return Follows.AGAIN  # where accounting lost the job, the policy is what ends it
    attempt = evidence.attempt
    if evidence.state == "OUT_OF_MEMORY" or attempt is None:
        return Follows.RETRY
    if attempt.gets_more_margin:
        return Follows.AGAIN  # as the policy counts, which ends it once the margin cannot grow
    if attempt.outcome is Outcome.FAILED:
        return Follows.RETRY
    return Follows.RETRY if attempt.outcome is Outcome.DIED and not attempt.has_advanced else Follows.AGAIN
