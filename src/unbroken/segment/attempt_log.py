"""The lines of history of one attempt, and what those before it allow; written while the lease is held."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from unbroken.errors import CancelledSegment, StalledError, UnbrokenError
from unbroken.runs import attempts as endings
from unbroken.runs import driver_start, job_note, policy
from unbroken.runs.checkpoint import Checkpoint, describe_done
from unbroken.runs.claim import Claim
from unbroken.runs.failure_limits import next_action
from unbroken.runs.history import Attempt, History
from unbroken.runs.lease import Lease
from unbroken.runs.segment_end import EndKind, SegmentEnd
from unbroken.runs.store import Store
from unbroken.segment.classify import complete
from unbroken.segment.job import Job
from unbroken.segment.supervisor import Work
from unbroken.slurm.job_end import EndState
from unbroken.slurm.nodes import own_spare_nodes
from unbroken.system.clock import utc_now


class AttemptLog:
    """The history of a run as its segment reads and writes it."""

    def __init__(self, job: Job, held: Lease) -> None:
        self._job, self._held = job, held
        self._history = History(job.places.history)

    def all(self) -> list[Attempt]:
        """All attempts, oldest first."""
        return self._history.attempts()

    def worked_seconds(self) -> float:
        """What the attempts at this segment have worked that brought the run forward."""
        own = (attempt for attempt in self.all() if attempt.segment == self._job.segment and attempt.has_advanced)
        return sum(attempt.work_seconds for attempt in own)

    def refuse_same_again(self) -> None:
        """Raises as `goes_back` where that is known before a checkpoint is looked at."""
        if (recent := self._recent()) and recent[-1].kind.is_before_work:
            self.goes_back()

    def goes_back(self) -> bool:
        """True if this attempt is to go on from the checkpoint before the newest.

        StalledError or CancelledSegment says why no further attempt is made within one start of snakemake.
        """
        recent = endings.with_causes(self._recent())
        rules = policy.Rules(self._job.run.attempts_without_progress)
        action = next_action(self._job.places, recent, rules, self._job.segment, own_spare_nodes)
        if action.stops:
            made = CancelledSegment if recent[-1].job_state is EndState.CANCELLED else StalledError
            raise made(f"runs.{self._job.run.name}: {action.found}", todo=action.todo)
        return action.kind is policy.Next.FALL_BACK

    def _recent(self) -> list[Attempt]:
        """The attempts since snakemake was started; only those at this segment where that start has no name."""
        attempts = self._history.attempts()
        if start := driver_start.current():
            return policy.of_start(attempts, start)
        tries = [attempt for attempt in attempts if attempt.segment == self._job.segment]
        return tries[-(self._job.driver_attempt - 1) :] if self._job.driver_attempt > 1 else []

    def close_died(self, previous: Claim, store: Store, until_utc: str) -> None:
        """A holder that did not release was killed: it cannot write its line any more, so a successor does.

        `until_utc` is when the next one began.
        """
        if attempt := endings.note_died(self._history, previous, store, until_utc):
            self._job.tell(f"attempt {previous.token} (segment {previous.segment}): {attempt.message}")

    def close(self, work: Work, end: SegmentEnd) -> None:
        """Say to the job how an attempt that has worked ended, and add its line."""
        end = complete(end, work)
        job_note.tell_end(end)
        self._history.append(self._worked(work, end))

    def note_before_work(self, end: SegmentEnd, began_utc: str) -> None:
        """The same for one that never came to its work; a disk that takes nothing hides no other error."""
        last = next(reversed(self._history.attempts()), None)
        attempt = self._without_work(last, end, began_utc)
        job_note.tell_end(attempt)
        if last and (last.slurm_job, last.message) == (attempt.slurm_job, attempt.message) and last.slurm_job:
            return  # the same job tries for a while
        with contextlib.suppress(OSError, UnbrokenError):
            self._held.confirm()
            self._history.append(attempt)

    def note_results(self, checkpoint: Checkpoint, began_utc: str) -> None:
        """Add the line of a finish whose results were made by a later attempt, unless a line says so already."""
        attempts = self._history.attempts()
        if any(attempt.kind is EndKind.FINISHED and _left(attempt) == checkpoint.name for attempt in attempts):
            return
        message = f"goal reached: {describe_done(checkpoint)}; nothing was left to compute, its results were written"
        end, done = SegmentEnd(kind=EndKind.FINISHED, message=message), checkpoint.passport.progress
        made = replace(
            self._without_work(next(reversed(attempts), None), end, began_utc),
            from_checkpoint=checkpoint.name,
            progress_from=done.done,
            progress_to=done.done,
            unit=done.unit,
        )
        job_note.tell_end(made)
        self._history.append(made)

    def _without_work(self, last: Attempt | None, end: SegmentEnd, began_utc: str) -> Attempt:
        end = replace(end, message=end.message.removeprefix(f"runs.{self._job.run.name}: "))
        number, who = self._job.driver_attempt, self._held.claim.of_attempt
        return endings.before_work(last, self._job.segment, end, driver_attempt=number, started_utc=began_utc, **who)

    def _worked(self, work: Work, end: SegmentEnd) -> Attempt:
        publisher = work.publisher
        return Attempt.of(
            end,
            **self._held.claim.of_attempt,
            segment=self._job.segment,
            driver_attempt=self._job.driver_attempt,
            started_utc=publisher.started_utc,
            ended_utc=utc_now(),
            work_seconds=round(publisher.worked_seconds, 3),
            saves=publisher.saves,
            save_seconds=round(publisher.save_seconds, 3),
            stop_seconds=None if work.stop_seconds is None else round(work.stop_seconds, 3),
            unused_seconds=round(work.deadline.left_seconds(), 3),
            exit_code=work.exit_code,
            slurm_partition=work.slurm_job.partition if work.slurm_job else "",
        )


def _left(attempt: Attempt) -> str | None:
    return attempt.to_checkpoint or attempt.from_checkpoint
