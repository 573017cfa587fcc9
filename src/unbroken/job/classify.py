"""Classify the end of an attempt by the store and its program's verdict, not by the exit code; write its line."""

from __future__ import annotations

import logging
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from unbroken.errors import (
    CancelledSegment,
    DivergedError,
    InterruptedSegment,
    PartialSegment,
    SegmentError,
    StalledError,
    StorageError,
    UnbrokenError,
)
from unbroken.job import end_note, policy
from unbroken.job.attempt import Job
from unbroken.job.deadline import NEARLY_ALL
from unbroken.job.settled import is_finished
from unbroken.job.supervisor import Work
from unbroken.program.contract import EXIT_FINISHED, EXIT_PAUSED
from unbroken.program.leaving import StopReason
from unbroken.program.verdict import Kind, read_verdict
from unbroken.slurm.job import EndState
from unbroken.slurm.partitions import own_spare_nodes
from unbroken.store import attempts as endings
from unbroken.store import driver_start
from unbroken.store.checkpoint import Checkpoint, describe_done
from unbroken.store.checkpoints import Store
from unbroken.store.history import FIX, Attempt, EndCause, EndKind, History, SegmentEnd
from unbroken.store.lease import Lease
from unbroken.store.times import killed_words
from unbroken.system import disk
from unbroken.system.clock import utc_now

logger = logging.getLogger(__name__)


def judge(work: Work) -> SegmentEnd:
    """Return finished, paused with a newer checkpoint, interrupted, or failed; doubt is failure."""
    last, left = work.last, describe_exit(work.exit_code)
    if last is not None and is_finished(last, work.job.run):
        return SegmentEnd(kind=EndKind.FINISHED, message=f"goal reached: {describe_done(last)}")
    if work.stop_reason is not None and work.stop_reason.is_interruption and not _is_nearly_over(work):
        saved = f"saved at {describe_done(last)}" if last is not None else "nothing to save yet"
        return SegmentEnd(kind=EndKind.INTERRUPTED, message=f"{work.stop_reason.value}; {saved}")
    newer = last if last is not None and endings.has_newer(last, work.task.origin) else None
    is_asked = work.exit_means == EXIT_PAUSED or work.stop_reason is not None
    if work.stop_reason is StopReason.STALLED:
        why = f"no progress in {work.job.run.stall_minutes:g} minutes (stall_minutes)"
    elif work.exit_means == EXIT_FINISHED:
        said = f"its last checkpoint says {describe_done(last)}" if last else "left no checkpoint"
        why = f"the program ended with exit code 0 (goal reached) but {said}"
    elif is_asked and newer is not None:
        return _paused(work, newer, left)
    elif is_asked:
        why = f"the program {left} and left no newer checkpoint{f'; {work.error}' if work.error else ''}"
    else:
        kept = f"kept: {describe_done(newer)}" if newer is not None else "nothing new was saved"
        why = f"the program {left}{f': {work.error}' if work.error else ''}; {kept}"
    return SegmentEnd(kind=EndKind.FAILED, message=why, log=str(work.job.log))


def _paused(work: Work, last: Checkpoint, left: str) -> SegmentEnd:
    if (minutes := _minutes_if_partial(work)) is None:
        return SegmentEnd(kind=EndKind.PAUSED, message=f"paused at {describe_done(last)}; the program {left}")
    had = f"this segment has had {minutes:.3g} of {work.job.run.segment_minutes:g} minutes"
    message = f"saved at {describe_done(last)}; {had} and goes on in the next job"
    return SegmentEnd(kind=EndKind.INTERRUPTED, message=message, cause=EndCause.PARTIAL)


def explained(end: SegmentEnd, work: Work) -> SegmentEnd:
    """Return the end with what the engine knows, and what the program could not know or say.

    That memory or the disk ran out, and that its stop was killed; a run at its goal was not hurt by that.
    """
    words, cause, killed_after = [end.message], end.cause, work.killed_after_seconds
    if end.kind is EndKind.FAILED:
        words.append(work.engine.why_nothing_newer(work.task))
    if not end.kind.settles:
        needed = sum(entry.size_bytes for entry in work.last.passport.files.values()) if work.last else 0
        full = disk.full_words(work.job.places.root, needed)
        words.append(full)
        if full or disk.reports_storage(work.error):
            cause = cause or EndCause.STORAGE
        if work.is_out_of_memory:
            more = f"the next attempt asks for {work.job.run.resources.memory_growth:g} times as much (memory_growth)"
            words.append(f"killed: out of memory; {more}")
    if killed_after is not None and end.kind is not EndKind.FINISHED:
        words.append(killed_words(killed_after, work.moments.so_far))
        cause, killed_after = EndCause.KILLED_STOPPING, round(killed_after, 3)
    else:
        killed_after = None
    return replace(end, message="; ".join(filter(None, words)), cause=cause, killed_after_seconds=killed_after)


def error_of(run: str, end: SegmentEnd) -> SegmentError:
    """Return the error by which a segment leaves that is not settled."""
    if end.kind is not EndKind.INTERRUPTED:
        return SegmentError(end.message, log=end.log, todo=end.todo, run=run)
    made = PartialSegment if end.cause is EndCause.PARTIAL else InterruptedSegment
    return made(end.goes_on, run=run)


def end_by(error: UnbrokenError) -> SegmentEnd:
    """Return the end of an attempt whose work was ended by an error."""
    storage = EndCause.STORAGE if isinstance(error, StorageError) else None
    cause = EndCause.DIVERGED if isinstance(error, DivergedError) else storage
    return SegmentEnd(kind=EndKind.FAILED, message=error.text, log=error.log, todo=error.todo, cause=cause)


def describe_exit(code: int | None) -> str:
    """Return `ended with exit code 1`, `was ended by SIGKILL` or the like."""
    if code is None:
        return "was not started"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _is_nearly_over(work: Work) -> bool:
    left = work.left_seconds_at_stop
    return left is not None and left < (1 - NEARLY_ALL) * work.given_seconds


def _minutes_if_partial(work: Work) -> float | None:
    """Return the minutes that the segment has had in all its jobs if it needs more although this job is used up.

    Return None unless the run accepts less time, so that short jobs do not use up the run's segments.  A job that a
    signal asks to leave ends the segment; so does a program that leaves much too early.
    """
    run = work.job.run
    if run.least_minutes is None or work.stop_reason is StopReason.WARNED:
        return None
    worked = work.publisher.worked_seconds
    if work.given_seconds >= NEARLY_ALL * run.segment_minutes * 60 or worked < work.given_seconds / 2:
        return None
    had = (work.had_seconds + worked) / 60
    return had if had < NEARLY_ALL * run.segment_minutes else None


class Rejections:
    """The checkpoints that programs have called bad while one job worked for the run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._moved: tuple[Path, str] | None = None

    def apply(self, work: Work) -> bool:
        """Return True if the checkpoint the work resumed from was quarantined: the one before is to be taken.

        Raise DivergedError if the program calls the run hopeless, or if no checkpoint suits it.
        """
        verdict = read_verdict(work.task.attempt_folder.verdict)
        if verdict is None:
            return False
        run, origin, last = work.job.run.name, work.task.origin, work.last
        if verdict.kind is Kind.HOPELESS:
            kept = f"the checkpoint of before is kept ({describe_done(last)})" if last else "nothing was saved"
            raise DivergedError(f"{verdict.message}; {kept}", log=work.job.log, todo=FIX, run=run)
        if origin is None or last is not origin:
            found = "it was given none" if origin is None else "it has gone on from it and saved"
            raise SegmentError(f"the program calls its checkpoint bad ({verdict.message}), but {found}", run=run)
        self._quarantine(work.job, origin, verdict.message)
        return True

    def _quarantine(self, job: Job, origin: Checkpoint, why: str) -> None:
        """Quarantine a checkpoint if there is another one; raise DivergedError if not, or at a second one in a row."""
        bad = f"the program calls the checkpoint {origin.name} bad ({why})"
        if self._moved is not None:
            self._store.put_back(*self._moved)
            found = f"and {self._moved[1]}, the one after it, too: the fault may be the program's or the machine's"
            raise DivergedError(f"{bad}, {found}; nothing was set aside", run=job.run.name, log=job.log)
        if len(self._store.readable()) == 1:
            raise DivergedError(f"{bad}, and there is no other; nothing was set aside", run=job.run.name, log=job.log)
        target = self._store.quarantine(origin.name, why, is_whole=True)
        self._moved = target, origin.name
        logger.info(f"bad checkpoint {origin.name}: {why}; moved to {target}; taking the one before")


# --- the history ---


class AttemptLog:
    """The history of a run as its segment reads and writes it."""

    def __init__(self, job: Job, held: Lease) -> None:
        self._job, self._held = job, held
        self._history = History(job.places.history)
        self.all = self._history.attempts

    def worked_seconds(self) -> float:
        """Return what the attempts at this segment have worked that brought the run forward."""
        own = (attempt for attempt in self.all() if attempt.segment == self._job.segment and attempt.has_advanced)
        return sum(attempt.work_seconds for attempt in own)

    def refuse_same_again(self) -> None:
        """Raise as `goes_back` where that is known before a checkpoint is looked at."""
        if (recent := self._recent()) and recent[-1].kind.is_before_work:
            self.goes_back()

    def goes_back(self) -> bool:
        """Return True if this attempt is to resume from the checkpoint before the newest.

        StalledError or CancelledSegment says why no further attempt is made within one start of snakemake.
        """
        recent = endings.with_causes(self._recent())
        rules = policy.Rules(self._job.run.attempts_without_progress)
        action = policy.next_action_now(
            self._job.places, recent, rules, segment=self._job.segment, spare_nodes=own_spare_nodes
        )
        if action.stops:
            made = CancelledSegment if recent[-1].job_state is EndState.CANCELLED else StalledError
            raise made(action.found, todo=action.todo, run=self._job.run.name)
        return action.kind is policy.Next.FALL_BACK

    def _recent(self) -> list[Attempt]:
        """Return the attempts since snakemake was started; only those at this segment where that start has no name."""
        attempts = self.all()
        if start := driver_start.current():
            return policy.of_start(attempts, start)
        tries = [attempt for attempt in attempts if attempt.segment == self._job.segment]
        return tries[-(self._job.driver_attempt - 1) :] if self._job.driver_attempt > 1 else []

    def close(self, work: Work, end: SegmentEnd) -> None:
        """Report to the job how an attempt that has worked ended, and add its line, with all that is measured."""
        state = EndState.OUT_OF_MEMORY if work.is_out_of_memory else None
        end = endings.reached(end, work.task.origin, work.last)
        end = replace(end, job_state=state, times=work.moments.times())
        end_note.tell_end(end)
        publisher, slurm_job = work.publisher, work.limits.slurm_job
        worked = Attempt.of(
            end,
            **self._own,
            started_utc=publisher.started_utc,
            ended_utc=utc_now(),
            work_seconds=round(publisher.worked_seconds, 3),
            saves=publisher.saves,
            save_seconds=round(publisher.save_seconds, 3),
            stop_seconds=None if work.stop_seconds is None else round(work.stop_seconds, 3),
            unused_seconds=round(work.limits.deadline.left_seconds(), 3),
            exit_code=work.exit_code,
            slurm_partition=slurm_job.partition if slurm_job else "",
        )
        self._history.append(worked)

    def note_before_work(self, end: SegmentEnd, began_utc: str) -> None:
        """Report an attempt that never began its work, and add its line; a failing disk hides no other error."""
        last = next(reversed(self.all()), None)
        attempt = endings.before_work(last, end=end, started_utc=began_utc, **self._own)
        end_note.tell_end(attempt)
        if last and (last.slurm_job, last.message) == (attempt.slurm_job, attempt.message) and last.slurm_job:
            return  # the same job tries for a while
        with suppress(OSError, UnbrokenError):
            self._held.confirm()
            self._history.append(attempt)

    def note_results(self, checkpoint: Checkpoint, began_utc: str) -> None:
        """Add the line of a finish whose results were made by a later attempt, unless a line says so already."""
        lefts = [each.to_checkpoint or each.from_checkpoint for each in self.all() if each.kind is EndKind.FINISHED]
        if checkpoint.name in lefts:
            return
        message = f"goal reached: {describe_done(checkpoint)}; nothing was left to compute, its results were written"
        end = endings.reached(SegmentEnd(kind=EndKind.FINISHED, message=message), checkpoint, checkpoint)
        end_note.tell_end(end)
        self._history.append(Attempt.of(end, **self._own, started_utc=began_utc, ended_utc=utc_now()))

    @property
    def _own(self) -> dict[str, Any]:
        """Return the fields that say whose attempt it is."""
        job = self._job
        return {**self._held.claim.of_attempt, "segment": job.segment, "driver_attempt": job.driver_attempt}
