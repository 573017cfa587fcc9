"""What follows the end of a rule's job in the chain of that rule; pure.

Inside the rule's job Snakemake turns the exit code 85 into 1 and removes the rule's outputs, so the code says nothing:
the job's own note names its run, and the history of that run says how it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from unbroken.job.rule_state import RuleState
from unbroken.runs.exec_note import REFUSED, ExecNote
from unbroken.runs.history import Attempt
from unbroken.runs.outcome import Outcome
from unbroken.runs.progress import amount
from unbroken.slurm.job_end import EndState

# Slurm ended the job at the limit of its time, which is the rule's own.
_AT_LIMIT = {EndState.TIMEOUT.value, EndState.DEADLINE.value}


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
    """How a job of the rule ended that did not end well.

    `note` is its own, `history` that of its run.  `ended_by` is Slurm's word if Slurm ended the job.
    """

    job_id: str
    note: ExecNote | None
    history: Sequence[Attempt] = ()
    ended_by: str = ""
    is_out_of_memory: bool = False

    @property
    def is_taken_away(self) -> bool:
        """Return True if Slurm ended the job before its time was over: the rule did nothing wrong."""
        return bool(self.ended_by) and self.ended_by not in _AT_LIMIT

    @property
    def pause(self) -> Attempt | None:
        """Return the attempt by which the job has paused; None if it did not."""
        own = [attempt for attempt in self.history if attempt.slurm_job == self.job_id]
        return own[-1] if own and own[-1].outcome is Outcome.PAUSED else None

    @property
    def pauses(self) -> int:
        """Return how often its run has paused, this job included."""
        return sum(attempt.outcome is Outcome.PAUSED for attempt in self.history)


@dataclass(frozen=True)
class RuleFollows:
    """The state that the next task finds, why there is none (empty if there is one), and a line for the log."""

    state: RuleState
    why_stop: str = ""
    line: str = ""


def after(before: RuleState, end: RuleEnd, allowed: Allowed) -> RuleFollows:
    """Return what follows the end of a job."""
    state = replace(before, note=end.note or before.note)
    if end.note is not None and end.note.outcome == REFUSED:
        return RuleFollows(state, end.note.reason)
    if end.is_out_of_memory:
        return _after_out_of_memory(state, end, allowed)
    if end.note is not None and end.pause is not None:
        return _after_pause(before, state, end, allowed)
    if end.is_taken_away:
        return RuleFollows(state)
    if end.note is None:
        return _failed(state, allowed, "no segment of `unbroken exec`, or of a training, began in it")
    if end.note.outcome == Outcome.FINISHED.value:
        return _failed(state, allowed, "the rest of the rule failed although its program was done")
    return RuleFollows(replace(state, failures=0))  # the history and the policy say it


def _after_pause(before: RuleState, state: RuleState, end: RuleEnd, allowed: Allowed) -> RuleFollows:
    known = before.pauses if before.store == state.store else 0
    if end.pauses <= known and not end.is_taken_away:
        return _failed(state, allowed, "no more segments than before are done; has the rule --anew in it?")
    state = replace(state, pauses=end.pauses, failures=0)
    if end.pauses < allowed.segments or end.pause is None:
        return RuleFollows(state)
    done = f"{amount(end.pause.progress_to)} {end.pause.unit} done"
    used = f"{end.note.name if end.note else allowed.rule}: its {allowed.segments} segments are used up, with {done}"
    return RuleFollows(state, f"{used}; to go on, raise `segments` of rule {allowed.rule}, then start snakemake again")


def _after_out_of_memory(state: RuleState, end: RuleEnd, allowed: Allowed) -> RuleFollows:
    kills = len(state.killed_jobs)
    state = replace(state, killed_jobs=(*state.killed_jobs, end.job_id))
    had, gets = allowed.memory_after(kills), allowed.memory_after(kills + 1)
    what = f"rule {allowed.rule} ran out of memory{f' ({had} MB)' * bool(had)}"
    if kills >= allowed.retries:
        return RuleFollows(state, f"{what}; raise its mem_mb, then start snakemake again")
    return RuleFollows(state, line=f"{what}; tried again{f' with {gets} MB' * bool(gets)}")


def _failed(state: RuleState, allowed: Allowed, why: str) -> RuleFollows:
    """Count a failure; stop after as many as the rule may be retried."""
    state = replace(state, failures=state.failures + 1)
    if state.failures <= allowed.retries:
        return RuleFollows(state, line=f"{why}; tried again")
    times = f" {state.failures} times" if state.failures > 1 else ""
    return RuleFollows(state, f"rule {allowed.rule} failed{times}: {why}")
