"""What follows the end of a rule's job in the chain of that rule; pure.

Inside the rule's job Snakemake turns the exit code 85 into 1 and removes the rule's outputs, so the code says nothing:
the job's own note names its run, and the history of that run says how it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from unbroken.job.rule_state import RuleState
from unbroken.runs.exec_note import ExecNote
from unbroken.runs.history import Attempt
from unbroken.runs.policy import Next, NextAction
from unbroken.runs.progress import amount
from unbroken.runs.segment_end import EndCause, EndKind, SegmentEnd
from unbroken.slurm.job_end import EndState

# Slurm ended the job at the limit of its time, which is the rule's own.
_AT_LIMIT = {EndState.TIMEOUT, EndState.DEADLINE}


@dataclass(frozen=True)
class Allowed:
    """What a rule may do: so many segments, further attempts after a failure, and memory at each attempt in MB."""

    rule: str
    segments: int
    retries: int
    memory_mb: tuple[int, ...] = ()

    def memory_after(self, kills: int) -> int:
        """Return what the rule asks for after it ran out of memory so often; 0 if it does not say."""
        return self.memory_mb[min(kills, len(self.memory_mb) - 1)] if self.memory_mb else 0


@dataclass(frozen=True)
class RuleEnd:
    """How a job of the rule ended that did not end well; `pauses` are all of its run, this job's included."""

    job_id: str
    note: ExecNote | None
    end: SegmentEnd
    pauses: int = 0

    @property
    def is_taken_away(self) -> bool:
        """Return True if Slurm ended the job before its time was over: the rule did nothing wrong."""
        return self.end.job_state is not None and self.end.job_state not in _AT_LIMIT


def rule_end(
    job_id: str, note: ExecNote | None, history: Sequence[Attempt], ended_by: EndState | None, is_out_of_memory: bool
) -> RuleEnd:
    """Return how a job ended by its own note, the history of its run, and Slurm's word if Slurm ended it."""
    own = [attempt for attempt in history if attempt.slurm_job == job_id]
    pauses = sum(attempt.kind is EndKind.PAUSED for attempt in history)
    return RuleEnd(job_id, note, _end(note, own[-1] if own else None, ended_by, is_out_of_memory), pauses)


def _end(note: ExecNote | None, own: Attempt | None, ended_by: EndState | None, is_out_of_memory: bool) -> SegmentEnd:
    if note is not None and note.kind is EndKind.REFUSED:
        return SegmentEnd(kind=EndKind.REFUSED, message=note.reason)
    if is_out_of_memory:
        return SegmentEnd(kind=EndKind.DIED, job_state=EndState.OUT_OF_MEMORY)
    if note is not None and own is not None and own.kind is EndKind.PAUSED:
        return replace(own, job_state=ended_by)
    if note is None:
        message = "no segment of `unbroken exec`, or of a training, began in it"
        return SegmentEnd(kind=EndKind.NEVER_RAN, message=message, job_state=ended_by)
    if note.kind is EndKind.FINISHED:
        message = "the rest of the rule failed although its program was done"
        return SegmentEnd(kind=EndKind.FAILED, cause=EndCause.NO_RESULTS, message=message, job_state=ended_by)
    return SegmentEnd(kind=note.kind or EndKind.DIED, job_state=ended_by)


def after(before: RuleState, ended: RuleEnd, allowed: Allowed) -> tuple[RuleState, NextAction]:
    """Return the state that the next task finds, and what follows the end of a job."""
    state, end = replace(before, note=ended.note or before.note), ended.end
    if end.kind is EndKind.REFUSED:
        return state, NextAction(Next.STOP, end.message)
    if end.ran_out_of_memory:
        return _after_out_of_memory(state, ended, allowed)
    if end.kind is EndKind.PAUSED:
        return _after_pause(before, state, ended, allowed)
    if ended.is_taken_away:
        return state, NextAction(Next.RESUME)
    if end.kind is EndKind.NEVER_RAN or end.cause is EndCause.NO_RESULTS:
        return _failed(state, allowed, end.message)
    return replace(state, failures=0), NextAction(Next.RETRY)  # the history and the policy say more


def _after_pause(before: RuleState, state: RuleState, ended: RuleEnd, allowed: Allowed) -> tuple[RuleState, NextAction]:
    known = before.pauses if before.store == state.store else 0
    if ended.pauses <= known and not ended.is_taken_away:
        return _failed(state, allowed, "no more segments than before are done; has the rule --anew in it?")
    state = replace(state, pauses=ended.pauses, failures=0)
    if ended.pauses < allowed.segments:
        return state, NextAction(Next.RESUME)
    done = f"{amount(ended.end.progress_to)} {ended.end.unit} done"
    name = ended.note.name if ended.note else allowed.rule
    used = f"{name}: its {allowed.segments} segments are used up, with {done}"
    todo = f"to go on, raise `segments` of rule {allowed.rule}, then start snakemake again"
    return state, NextAction(Next.STOP, f"{used}; {todo}")


def _after_out_of_memory(state: RuleState, ended: RuleEnd, allowed: Allowed) -> tuple[RuleState, NextAction]:
    kills = len(state.killed_jobs)
    state = replace(state, killed_jobs=(*state.killed_jobs, ended.job_id))
    had, gets = allowed.memory_after(kills), allowed.memory_after(kills + 1)
    what = f"rule {allowed.rule} ran out of memory{f' ({had} MB)' * bool(had)}"
    if kills >= allowed.retries:
        return state, NextAction(Next.STOP, f"{what}; raise its mem_mb, then start snakemake again")
    return state, NextAction(Next.MORE_MEMORY, f"{what}; tried again{f' with {gets} MB' * bool(gets)}")


def _failed(state: RuleState, allowed: Allowed, why: str) -> tuple[RuleState, NextAction]:
    """Count a failure; stop after as many as the rule may be retried."""
    state = replace(state, failures=state.failures + 1)
    if state.failures <= allowed.retries:
        return state, NextAction(Next.RETRY, f"{why}; tried again")
    times = f" {state.failures} times" if state.failures > 1 else ""
    return state, NextAction(Next.STOP, f"rule {allowed.rule} failed{times}: {why}")
