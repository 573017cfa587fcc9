"""The judgement over an attempt: by what is in the store, not by the exit code."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace

from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED
from unbroken.program.stop_reason import StopReason
from unbroken.runs.checkpoint import Checkpoint, describe_done
from unbroken.runs.killed_stop import killed_words
from unbroken.runs.outcome import EndCause, Outcome
from unbroken.runs.run import Run
from unbroken.segment.supervisor import Work
from unbroken.system import fs

# A TERM so late in a segment is its limit and not a preemption.
NEARLY_ALL = 0.9


@dataclass(frozen=True)
class Judgement:
    """How the attempt ended and, in one line, why."""

    outcome: Outcome
    message: str
    is_storage_failure: bool = False
    is_partial: bool = False  # the job had less time than a segment, and has used it
    end_cause: EndCause | None = None


def is_finished(checkpoint: Checkpoint | None, run: Run | None) -> bool:
    """Return True if the checkpoint reached the goal as it is by now, raised or lowered; of an unknown run its own."""
    if checkpoint is None:
        return False
    passport = checkpoint.passport
    if run is None or not passport.is_finished:
        return passport.is_finished or (run is not None and run.is_past_goal(passport.progress))
    return run.is_content_with(passport.progress)


def judge(work: Work) -> Judgement:
    """Finished, paused with a newer checkpoint, interrupted, or failed; doubt is failure."""
    last, origin = work.last, work.task.origin
    if last is not None and is_finished(last, work.job.run):
        return Judgement(Outcome.FINISHED, f"goal reached: {describe_done(last)}")
    has_advanced = last is not None and has_newer(last, origin)
    left = describe_exit(work.exit_code)
    where = f"; read {work.job.log}"
    if work.stop_reason is StopReason.STALLED:
        minutes = work.job.run.stall_minutes
        return Judgement(Outcome.FAILED, f"no progress in {minutes:g} minutes (stall_minutes){where}")
    if work.stop_reason is not None and work.stop_reason.is_interruption and not _is_nearly_over(work):
        saved = f"saved at {describe_done(last)}" if last is not None else "nothing to save yet"
        return Judgement(Outcome.INTERRUPTED, f"{work.stop_reason.value}; {saved}; start again and it goes on")
    if work.exit_means == EXIT_FINISHED:
        return Judgement(Outcome.FAILED, _doubtful_end(last) + where)
    if work.exit_means == EXIT_PAUSED or work.stop_reason is not None:
        if has_advanced and last is not None and (minutes := _minutes_if_partial(work)) is not None:
            had = f"this segment has had {minutes:.3g} of {work.job.run.segment_minutes:g} minutes"
            told = f"saved at {describe_done(last)}; {had} and goes on in the next job"
            return Judgement(Outcome.INTERRUPTED, told, is_partial=True)
        if has_advanced and last is not None:
            return Judgement(Outcome.PAUSED, f"paused at {describe_done(last)}; the program {left}")
        said = f"; {work.error}" if work.error else ""
        return Judgement(Outcome.FAILED, f"the program {left} and left no newer checkpoint{said}{where}")
    kept = f"; kept: {describe_done(last)}" if last is not None and has_advanced else "; nothing new was saved"
    said = f": {work.error}" if work.error else ""
    return Judgement(Outcome.FAILED, f"the program {left}{said}{kept}{where}")


def explained(judgement: Judgement, work: Work) -> Judgement:
    """The same with what the engine knows of it, and what the program could not know: memory or the disk ran out."""
    return _with_stop(_with_memory(_with_disk(_with_engine(judgement, work), work), work), work)


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


def _with_engine(judgement: Judgement, work: Work) -> Judgement:
    why = "" if judgement.outcome is not Outcome.FAILED else work.engine.why_nothing_newer(work.task)
    return replace(judgement, message=f"{judgement.message}; {why}") if why else judgement


def _with_disk(judgement: Judgement, work: Work) -> Judgement:
    """A program that failed on a full disk says so in its own words only; the bytes are added here."""
    needed = sum(entry.size_bytes for entry in work.last.passport.files.values()) if work.last else 0
    disk = "" if judgement.outcome.settles else fs.full_disk_words(work.job.places.root, needed)
    if not disk:
        return replace(judgement, is_storage_failure=fs.tells_of_storage(judgement.message))
    return replace(judgement, message=f"{judgement.message}; {disk}", is_storage_failure=True)


def _with_memory(judgement: Judgement, work: Work) -> Judgement:
    """The kernel says nothing to a program that it kills because it is out of memory; here the reason is added."""
    if judgement.outcome.settles or not work.is_out_of_memory:
        return judgement
    more = f"the next attempt asks for {work.job.run.memory_growth:g} times as much (memory_growth)"
    return replace(judgement, message=f"{judgement.message}; killed: out of memory; {more}")


def _with_stop(judgement: Judgement, work: Work) -> Judgement:
    """Return the judgement with the stop that was killed; a run at its goal was not hurt by it."""
    if work.killed_after_seconds is None or judgement.outcome is Outcome.FINISHED:
        return judgement
    said = killed_words(work.killed_after_seconds, work.moments.so_far)
    return replace(judgement, message=f"{judgement.message}; {said}", end_cause=EndCause.KILLED_STOPPING)


def _is_nearly_over(work: Work) -> bool:
    left = work.left_seconds_at_stop
    return left is not None and left < (1 - NEARLY_ALL) * work.given_seconds


def _minutes_if_partial(work: Work) -> float | None:
    """What the segment has had in all its jobs, where that is less than a whole one although this job is used up.

    Only of a run that accepts less time, so that short jobs do not use up the run's segments.  A job that is asked to
    leave by a signal ends the segment; so does a program that leaves much too early.
    """
    run = work.job.run
    if run.least_minutes is None or work.stop_reason is StopReason.WARNED:
        return None
    worked = work.publisher.worked_seconds
    if work.given_seconds >= NEARLY_ALL * run.segment_minutes * 60 or worked < work.given_seconds / 2:
        return None
    had = (work.had_seconds + worked) / 60
    return had if had < NEARLY_ALL * run.segment_minutes else None


def _doubtful_end(last: Checkpoint | None) -> str:
    if last is None:
        return "the program ended with exit code 0 (goal reached) but left no checkpoint"
    return f"the program ended with exit code 0 (goal reached) but its last checkpoint says {describe_done(last)}"
