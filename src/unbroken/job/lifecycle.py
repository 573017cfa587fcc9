"""The life of a segment: lease, select, work, judge, final, history, record.  Every engine's script calls it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial

from unbroken.engines.base import Engine, Task
from unbroken.errors import (
    CancelledSegment,
    FormatError,
    IdentityError,
    LeaseError,
    SegmentError,
    StalledError,
    StorageError,
    UnbrokenError,
)
from unbroken.job.attempt import Alarm, Job, SegmentLog, end_by, report_begun
from unbroken.job.classify import AttemptLog, Rejections, error_of, explained, judge
from unbroken.job.copier import Copier
from unbroken.job.deadline import NO_LIMIT_MINUTES, job_time, leaves_to, patience_seconds
from unbroken.job.publisher import (
    Publisher,
    computation_of,
    end_without_results,
    engine_errors,
    write_results,
)
from unbroken.job.recovery import Recovery, leave_note, refuse_unfinished
from unbroken.job.supervisor import Work
from unbroken.program.contract import AttemptFolder
from unbroken.store import driver_start, lease, times
from unbroken.store.checkpoint import Checkpoint, describe_done
from unbroken.store.checkpoints import Store
from unbroken.store.history import EndCause, EndKind
from unbroken.store.lease import Lease
from unbroken.store.own_folder import confirm_all_own
from unbroken.store.progress import amount
from unbroken.store.record import Record, record_if_done, record_of
from unbroken.store.run import identity_of, usable_identities
from unbroken.store.select import refusal, refuse_newer, select
from unbroken.store.times import Moments
from unbroken.system import fs, log
from unbroken.system.clock import utc_now
from unbroken.system.host import own_start_unix

logger = logging.getLogger(__name__)


def run_segment(job: Job, engine: Engine, prepare: Callable[[Lease], Job] | None = None) -> Record:
    """Bring the run forward by one segment and write its record; UnbrokenError says why it could not.

    If the process dies anywhere inside, the next attempt resumes from the newest good checkpoint.  `prepare` is asked,
    once the run is held, which segment it is.
    """
    folder, segment_log = job.places, SegmentLog(job)
    with log.lines_to(segment_log.write), Alarm() as alarm, fs.os_errors(folder.root):
        driver_start.refuse_missing(folder)
        confirm_all_own(folder.own)
        refuse_newer(folder)
        with lease.take(
            folder.lease,
            job.segment,
            patience_seconds(job),
            check=partial(alarm.leave_if_heard, job.run.name, "waiting"),
            mem_mb=job.run.resources.mem_mb,
            leaves_to=partial(leaves_to, job),
        ) as held:
            if prepare is not None:
                job = segment_log.job = prepare(held)
            is_limited = job.run.segment_minutes < NO_LIMIT_MINUTES
            length = f"{job.run.segment_minutes:g} minutes, " if is_limited else ""
            logger.info(f"engine {engine.name}, {length}attempt {job.driver_attempt}: {job.run.note}")
            copier = Copier(job, job.run.copies, held, alarm, engine) if job.run.copies else None
            with copier or nullcontext():
                record = _Segment(segment_log, engine, held, alarm, copier).run()
                if copier is not None:
                    copier.is_last = record.kind is EndKind.FINISHED
            return record


@dataclass
class _Segment:
    """The steps of one attempt while the lease is held."""

    log: SegmentLog
    engine: Engine
    held: Lease
    alarm: Alarm
    copier: Copier | None

    def __post_init__(self) -> None:
        self.job = self.log.job
        self.store = Store(self.job.places.checkpoints)
        self.recovery = Recovery(self.job, self.engine, self.held, self.store)
        self.attempts = AttemptLog(self.job, self.held)
        self.rejections = Rejections(self.store)
        self.cause: EndCause | None = None  # of an error that is raised now

    def run(self) -> Record:
        record = self._or_noted(self._prepare)
        while isinstance(record, Work):
            record = self._work(record)
        done = f"{amount(record.progress.done)} {record.progress.unit}"
        doubts = self._doubts(record)
        logger.info(f"{record.kind}{', with doubts' if doubts else ''}: {done}, checkpoint {record.checkpoint}")
        return record

    def _written(self, record: Record) -> Record:
        self.held.confirm()
        record = replace(record, written_utc=utc_now())  # its results may have taken minutes
        record.write(self.job.places.record(self.job.segment))
        return record

    def _doubts(self, record: Record) -> Sequence[str]:
        """Return why a finished result may not be that of one uninterrupted run."""
        with suppress(OSError, UnbrokenError):  # the record is written: no mere log line ends the segment
            newest = next(reversed(self.store.readable()), None)
            if record.kind is EndKind.FINISHED and newest is not None:
                return self.engine.results(self.job.run, newest).doubts
        return ()

    def _or_noted(self, step: Callable[[], Work | Record]) -> Work | Record:
        """Return the step's answer; an attempt that ends by it, before its work, has its line in the history too."""
        began = utc_now()
        try:
            with fs.os_errors(self.job.places.root):
                return step()
        except UnbrokenError as error:
            end = replace(end_by(error, has_begun=False), cause=self.cause)
            # What the policy says is no attempt, and a run of another job, or of a newer unbroken, has none of ours.
            if end.kind is not EndKind.HELD and not isinstance(error, StalledError | CancelledSegment | FormatError):
                self.attempts.note_before_work(end, began)
            raise

    def _prepare(self) -> Work | Record:
        """Do all that comes before the work; return the work, or the written record of a segment that needs none."""
        run, segment = self.job.run, self.job.segment
        refuse_newer(self.job.places)  # its owner until now may have been a newer one
        self.attempts.refuse_same_again()
        self.identity = identity_of(run, self.job.keys, self.job.base)
        self.recovery.prepare_folders()
        origin = self.recovery.recover(self._select())
        # What was saved just now may be of a config that was edited since.
        if origin is not None and not self._is_accepted(origin.passport.identity):
            raise IdentityError(refusal(run.name, origin, self.identity), run=run.name)
        record = record_if_done(run, segment, origin, self.attempts.all) if origin is not None else None
        if origin is None or record is None:
            return self._one_before(origin) if self.attempts.goes_back() and origin else self._new_work(origin)
        if record.kind is EndKind.FINISHED:
            self._repeat_results(origin)
        else:
            logger.info("this segment's work is already done: the record is made again from the store")
        return self._written(record)

    def _repeat_results(self, checkpoint: Checkpoint) -> None:
        """Make the results that an earlier attempt could not make, or that are gone; computes nothing."""
        began, self.cause, self.job = utc_now(), EndCause.NO_RESULTS, self.log.begin_work()
        write_results(self.job, self.engine, checkpoint, self.attempts.all(), self.held.confirm)
        self.attempts.note_results(checkpoint, began)
        self.cause = None

    def _one_before(self, newest: Checkpoint) -> Work:
        """Resume once from the checkpoint before the newest, from which no attempt came forward.

        The newest stays where it is until there is a better one.
        """
        older = self._select(skip=newest.name)
        if older is None:
            raise StalledError(f"no attempt came forward from {newest.folder}, the only one", run=self.job.run.name)
        logger.info(f"no attempt came forward from {newest.name}; this one goes on from the checkpoint before it")
        work = self._new_work(older)
        work.publisher.doubtful = newest
        return work

    def _is_accepted(self, identity: str) -> bool:
        """Return True for a computation of this run; asked late, as a file server may have answered only then."""
        return identity in usable_identities(self.identity, self.job.places.accepted, self.store.readable())

    def _select(self, skip: str = "") -> Checkpoint | None:
        # A later segment is queued only after an earlier one left a checkpoint, whatever the user has removed since.
        has_worked = self.job.segment > 1 or any(attempt.to_checkpoint for attempt in self.attempts.all())
        began = time.monotonic()
        rest = partial(self.alarm.rest, run=self.job.run.name, meanwhile="the file server was silent")
        try:
            origin = select(
                self.store, self.job.run.name, self._is_accepted, has_worked=has_worked, rest=rest, skip=skip
            )
        except IdentityError as error:
            found = refusal(self.job.run.name, self.store.readable()[-1], self.identity)
            raise IdentityError(found, run=self.job.run.name) from error
        if origin is None:
            refuse_unfinished(self.job.places)
            logger.info("starting from the beginning: the run has no checkpoint yet")
        else:
            self.held.confirm()
            if not skip:
                self.store.mend_links(origin)
            seconds = time.monotonic() - began
            logger.info(f"resuming from {origin.folder} ({describe_done(origin)}), verified in {seconds:.2f} s")
        return origin

    def _work(self, work: Work) -> Work | Record:
        """Return the written record; or other work, where the program rejected the checkpoint that it resumed from."""
        report_begun()
        driver_start.note_begun(self.job.places)
        error: UnbrokenError | None = None
        is_rejected = False
        try:
            with fs.os_errors(self.job.places.root), engine_errors(self.job.log, self._refused):
                work.run()
                is_rejected = self.rejections.apply(work)
                end = explained(judge(work), work)
        except UnbrokenError as raised:
            error, end = raised, end_by(raised, has_begun=True)
        self.held.confirm()  # first of all: a successor that took us for dead has removed our attempt folder
        if is_rejected:
            self.recovery.close(work.task)
            return self._or_noted(lambda: self._new_work(self._select()))
        work.publisher.prune()
        try:
            with fs.storage_errors(work.task.attempt_folder.root):
                self.recovery.close(work.task)  # which may be what fills the disk
            if error is None and end.kind is EndKind.FINISHED and work.last is not None:
                error = self._results_error(work, work.last)
                end = end_without_results(error, work.last) if error is not None else end
            self.attempts.close(work, end)
        except StorageError:
            if error is None:  # else it would hide the first one
                raise
        if error is not None:
            raise error
        if not end.kind.settles or work.last is None:
            raise error_of(self.job.run.name, end)
        return self._written(record_of(self.job.run, self.job.segment, end.kind, work.last))

    def _refused(self, why: str) -> SegmentError:
        return SegmentError(f"engine {self.engine.name}: {why}", log=self.job.log, run=self.job.run.name)

    def _results_error(self, work: Work, last: Checkpoint) -> UnbrokenError | None:
        """Write the results; return why they were not written.

        What the attempt has noted lies in its folder meanwhile, should the job be killed.
        """
        folder = work.task.attempt_folder
        with suppress(OSError):
            folder.root.mkdir()
            folder.note.write_text(times.FORMAT.text({"times": work.moments.so_far.to_json()}))
        try:
            write_results(self.job, self.engine, last, self.attempts.all(), self.held.confirm)
        except LeaseError:
            raise
        except UnbrokenError as error:
            return error
        finally:
            self.recovery.remove(folder.root)
        return None

    def _new_work(self, origin: Checkpoint | None) -> Work:
        self.job = job = self.log.begin_work()
        attempts = self.attempts.all()
        made = computation_of(job, self.identity, origin)
        attempt_folder = AttemptFolder(job.places.work / f"{self.held.claim.token:06d}")
        limits = job_time(job, attempts, attempt_folder)
        with fs.storage_errors(attempt_folder.root):
            attempt_folder.prepare()
            ends = limits.write_deadline()
            note = leave_note(attempt_folder, origin, made)
        is_warned = partial(bool, self.alarm.heard)
        task = Task(
            job.run,
            job.segment,
            origin,
            attempt_folder,
            ends,
            limits.deadline.unix(limits.margin.stop_seconds),
            is_warned,
        )
        moments = Moments(attempt_folder.note, limits.slurm_job, self.held.clock_ahead_seconds, note)
        moments.begin(own_start_unix(), attempts[-1].job_without_end if attempts else None)
        publisher = Publisher(
            job, self.engine, self.store, self.held.claim.token, self.held.confirm, made, limits.slurm_job, origin,
            copier=self.copier, clock=moments.watch.clock,
        )  # fmt: skip
        had_seconds = self.attempts.worked_seconds()
        return Work(job, self.engine, task, publisher, limits, self.held, self.alarm, moments, had_seconds)
