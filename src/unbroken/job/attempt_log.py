"""The lines of history of one attempt, and what those before it allow; written while the lease is held."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from unbroken.errors import CancelledSegment, StalledError, UnbrokenError
from unbroken.job import end_note
from unbroken.job.attempt import Job
from unbroken.job.supervisor import Work
from unbroken.runs import attempts as endings
from unbroken.runs import driver_start, policy
from unbroken.runs.checkpoint import Checkpoint, describe_done
from unbroken.runs.history import Attempt, History
from unbroken.runs.lease import Lease
from unbroken.runs.policy import next_action_now
from unbroken.runs.segment_end import EndKind, SegmentEnd
from unbroken.slurm.job import EndState
from unbroken.slurm.partitions import own_spare_nodes
from unbroken.system.clock import utc_now


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
        action = next_action_now(self._job.places, recent, rules, self._job.segment, own_spare_nodes)
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
        with contextlib.suppress(OSError, UnbrokenError):
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
