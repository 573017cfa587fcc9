"""The judgement over an attempt: by what is in the store, not by the exit code."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from longhaul.contract import EXIT_FINISHED, EXIT_PAUSED
from longhaul.outcome import Outcome
from longhaul.store import Checkpoint
from longhaul.work import StopReason, Work, describe_done

# A TERM so late in a segment is its limit and not a preemption.
NEARLY_ALL = 0.9


@dataclass(frozen=True)
class Judgement:
    """How the attempt ended and, in one line, why."""

    outcome: Outcome
    message: str


def is_finished(checkpoint: Checkpoint | None, goal: float | None) -> bool:
    """True if the checkpoint reached the goal, also if the goal was raised since."""
    if checkpoint is None or not checkpoint.passport.is_finished:
        return False
    reached = checkpoint.passport.progress.goal
    return goal is None or reached is None or goal <= max(reached, checkpoint.passport.progress.done)


def judge(work: Work) -> Judgement:
    """Finished, paused with a newer checkpoint, interrupted, or failed; doubt is failure."""
    last, origin = work.last, work.task.origin
    if last is not None and is_finished(last, work.job.run.goal):
        return Judgement(Outcome.FINISHED, f"goal reached: {describe_done(last)}")
    has_advanced = last is not None and has_newer(last, origin)
    left = describe_exit(work.exit_code)
    where = f"; read {work.job.log}"
    if work.stop_reason is StopReason.STALLED:
        minutes = work.job.run.stall_minutes
        return Judgement(Outcome.FAILED, f"no step forward in {minutes:g} minutes (stall_minutes){where}")
    if work.stop_reason is StopReason.TAKEN_AWAY and not _is_nearly_over(work):
        saved = f"saved at {describe_done(last)}" if last is not None else "nothing to save yet"
        return Judgement(Outcome.INTERRUPTED, f"{work.stop_reason.value}; {saved}; start again and it goes on")
    if work.exit_code == EXIT_FINISHED:
        return Judgement(Outcome.FAILED, _doubtful_end(last) + where)
    if work.exit_code == EXIT_PAUSED or work.stop_reason is not None:
        if has_advanced and last is not None:
            return Judgement(Outcome.PAUSED, f"paused at {describe_done(last)}; the program {left}")
        return Judgement(Outcome.FAILED, f"the program {left} and left no newer checkpoint{where}")
    kept = f"; kept: {describe_done(last)}" if last is not None and has_advanced else "; nothing new was saved"
    return Judgement(Outcome.FAILED, f"the program {left}{kept}{where}")


def has_newer(last: Checkpoint, origin: Checkpoint | None) -> bool:
    """True if the attempt brought the run forward; a checkpoint at the same place is no progress."""
    return origin is None or last.passport.progress.done > origin.passport.progress.done


def describe_exit(code: int | None) -> str:
    """`ended with exit code 1`, `was ended by SIGKILL`."""
    if code is None:
        return "was not started"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _is_nearly_over(work: Work) -> bool:
    length = work.job.run.segment_minutes * 60
    return work.deadline.left_seconds() < (1 - NEARLY_ALL) * length


def _doubtful_end(last: Checkpoint | None) -> str:
    if last is None:
        return "the program ended with exit code 0 (goal reached) but left no checkpoint"
    return f"the program ended with exit code 0 (goal reached) but its last checkpoint says {describe_done(last)}"
