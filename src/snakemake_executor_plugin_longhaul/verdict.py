"""What follows when a segment's job is gone and there is no record: by Slurm's word, the history and the store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from longhaul.endings import NOT_TO_BLAME
from longhaul.history import Attempt, History
from longhaul.outcome import Outcome
from longhaul.slurm.ending import Ending
from longhaul.store import Store
from snakemake_executor_plugin_longhaul.segments import Segment

# Slurm took the job away; the segment did nothing wrong.
TAKEN_AWAY = frozenset(ending.value for ending in Ending if ending.is_interruption)
# The others of them say nothing about the program.  Only TIMEOUT may mean that it never comes forward.
SAYS_NOTHING = frozenset(ending.value for ending in NOT_TO_BLAME)
UNKNOWN = "UNKNOWN"


class Follows(Enum):
    """What follows."""

    AGAIN = "the same segment goes on"  # no retry is used up
    RETRY = "it failed"  # Snakemake decides, by `retries`
    STOP = "the run stops"  # no retry is made


@dataclass(frozen=True)
class Verdict:
    """What follows and, in one line, why."""

    follows: Follows
    line: str


@dataclass(frozen=True)
class Evidence:
    """What a job without a record has left behind."""

    state: str
    attempt: Attempt | None
    idle: int  # endings in a row, this one included, that left no newer checkpoint and may be the program's fault


def verdict(segment: Segment, job_id: str, evidence: Evidence) -> Verdict:
    """What follows the end of a job; pure."""
    start = f"{segment.name}: job {job_id} ended as {evidence.state}"
    log = segment.places.log(segment.number)
    if evidence.state == "CANCELLED":
        return Verdict(Follows.STOP, f"{start}; this run stops, the others go on; to go on, start snakemake again")
    allowed = segment.run.attempts_without_progress
    # Want of memory is no reason to stop: the next attempt gets more.
    if evidence.idle >= allowed and evidence.state != "OUT_OF_MEMORY":
        why = f": {evidence.attempt.message}" if evidence.attempt else f"; log: {log}"
        brake = f"{evidence.idle} times in a row without a step forward, this run stops{why}"
        return Verdict(Follows.STOP, f"{start}, {brake}; mend the cause, then start snakemake again")
    if _follows(evidence) is Follows.RETRY:
        why = f": {evidence.attempt.message}" if evidence.attempt else f" and left no record; log: {log}"
        return Verdict(Follows.RETRY, start + why)
    return Verdict(Follows.AGAIN, f"{start}, no failure; the same segment goes on from the newest checkpoint")


def _follows(evidence: Evidence) -> Follows:
    if evidence.state in TAKEN_AWAY:
        return Follows.AGAIN
    if evidence.state == "OUT_OF_MEMORY":
        return Follows.RETRY
    if evidence.attempt is not None:
        return Follows.RETRY if evidence.attempt.outcome is Outcome.FAILED else Follows.AGAIN
    # Killed before it could write its line; where accounting lost the job, the brake is what ends it.
    return Follows.AGAIN if evidence.state == UNKNOWN or evidence.idle == 0 else Follows.RETRY


def attempt_of(segment: Segment, job_id: str) -> Attempt | None:
    """The last line that a job wrote into the history for this segment."""
    attempts = History(segment.places.history).attempts()
    own = [attempt for attempt in attempts if attempt.slurm_job == job_id and attempt.segment == segment.number]
    return own[-1] if own else None


def newest_sequence(segment: Segment) -> int:
    """The number of the run's newest checkpoint, 0 if there is none."""
    names = Store(segment.places.checkpoints).names()
    return int(names[-1].partition("_")[0]) if names else 0
