"""How an attempt at work ended: by what is in the store, not by the exit code."""

from __future__ import annotations

import signal
from dataclasses import replace

from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED
from unbroken.program.stop_reason import StopReason
from unbroken.runs.attempts import has_newer, reached
from unbroken.runs.checkpoint import Checkpoint, describe_done
from unbroken.runs.killed_stop import killed_words
from unbroken.runs.run import Run
from unbroken.runs.segment_end import EndCause, EndKind, SegmentEnd
from unbroken.segment.supervisor import Work
from unbroken.slurm.job_end import EndState
from unbroken.system import fs

# A TERM so late in a segment is its limit and not a preemption.
NEARLY_ALL = 0.9


def is_finished(checkpoint: Checkpoint | None, run: Run | None) -> bool:
    """Return True if the checkpoint reached the goal as it is by now, raised or lowered; of an unknown run its own."""
    if checkpoint is None:
        return False
    passport = checkpoint.passport
    if run is None or not passport.is_finished:
        return passport.is_finished or (run is not None and run.is_past_goal(passport.progress))
    return run.is_content_with(passport.progress)


def judge(work: Work) -> SegmentEnd:
    """Finished, paused with a newer checkpoint, interrupted, or failed; doubt is failure."""
    last = work.last
    if last is not None and is_finished(last, work.job.run):
        return SegmentEnd(kind=EndKind.FINISHED, message=f"goal reached: {describe_done(last)}")
    has_advanced = last is not None and has_newer(last, work.task.origin)
    left = describe_exit(work.exit_code)
    if work.stop_reason is StopReason.STALLED:
        return _failed(work, f"no progress in {work.job.run.stall_minutes:g} minutes (stall_minutes)")
    if work.stop_reason is not None and work.stop_reason.is_interruption and not _is_nearly_over(work):
        saved = f"saved at {describe_done(last)}" if last is not None else "nothing to save yet"
        return SegmentEnd(kind=EndKind.INTERRUPTED, message=f"{work.stop_reason.value}; {saved}")
    if work.exit_means == EXIT_FINISHED:
        return _failed(work, _doubtful_end(last))
    if work.exit_means == EXIT_PAUSED or work.stop_reason is not None:
        if has_advanced and last is not None:
            return _paused(work, last, left)
        said = f"; {work.error}" if work.error else ""
        return _failed(work, f"the program {left} and left no newer checkpoint{said}")
    kept = f"; kept: {describe_done(last)}" if last is not None and has_advanced else "; nothing new was saved"
    said = f": {work.error}" if work.error else ""
    return _failed(work, f"the program {left}{said}{kept}")


def _failed(work: Work, message: str) -> SegmentEnd:
    return SegmentEnd(kind=EndKind.FAILED, message=message, log=str(work.job.log))


def _paused(work: Work, last: Checkpoint, left: str) -> SegmentEnd:
    if (minutes := _minutes_if_partial(work)) is None:
        return SegmentEnd(kind=EndKind.PAUSED, message=f"paused at {describe_done(last)}; the program {left}")
    had = f"this segment has had {minutes:.3g} of {work.job.run.segment_minutes:g} minutes"
    message = f"saved at {describe_done(last)}; {had} and goes on in the next job"
    return SegmentEnd(kind=EndKind.INTERRUPTED, message=message, cause=EndCause.PARTIAL)


def explained(end: SegmentEnd, work: Work) -> SegmentEnd:
    """Return the end with what the engine knows, and what the program could not know: memory or the disk ran out."""
    return _with_stop(_with_memory(_with_disk(_with_engine(end, work), work), work), work)


def complete(end: SegmentEnd, work: Work) -> SegmentEnd:
    """Return the end with all that is measured: checkpoints, progress, times, and whether memory ran out."""
    state = EndState.OUT_OF_MEMORY if work.is_out_of_memory else None
    return replace(reached(end, work.task.origin, work.last), job_state=state, times=work.moments.times())


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


def _with_engine(end: SegmentEnd, work: Work) -> SegmentEnd:
    why = "" if end.kind is not EndKind.FAILED else work.engine.why_nothing_newer(work.task)
    return replace(end, message=f"{end.message}; {why}") if why else end


def _with_disk(end: SegmentEnd, work: Work) -> SegmentEnd:
    """Return the end of a program that failed on a full disk with the bytes: its own words do not say them."""
    needed = sum(entry.size_bytes for entry in work.last.passport.files.values()) if work.last else 0
    disk = "" if end.kind.settles else fs.full_disk_words(work.job.places.root, needed)
    if not disk and (end.kind.settles or not fs.tells_of_storage(work.error)):
        return end
    message = f"{end.message}; {disk}" if disk else end.message
    return replace(end, message=message, cause=end.cause or EndCause.STORAGE)


def _with_memory(end: SegmentEnd, work: Work) -> SegmentEnd:
    """Return the end with the reason that the kernel does not tell a program that it kills."""
    if end.kind.settles or not work.is_out_of_memory:
        return end
    more = f"the next attempt asks for {work.job.run.memory_growth:g} times as much (memory_growth)"
    return replace(end, message=f"{end.message}; killed: out of memory; {more}")


def _with_stop(end: SegmentEnd, work: Work) -> SegmentEnd:
    """Return the end with the stop that was killed; a run at its goal was not hurt by it."""
    if work.killed_after_seconds is None or end.kind is EndKind.FINISHED:
        return end
    seconds, said = work.killed_after_seconds, killed_words(work.killed_after_seconds, work.moments.so_far)
    message = f"{end.message}; {said}"
    return replace(end, message=message, cause=EndCause.KILLED_STOPPING, killed_after_seconds=round(seconds, 3))


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
