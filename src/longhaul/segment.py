"""The life of a segment: lease, pick, work, judge, final, history, record.  Every engine's script calls it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from longhaul import final, fs, lease
from longhaul.alarm import Alarm
from longhaul.clock import utc_now
from longhaul.contract import Desk
from longhaul.deadline import deadline_for, learn_margin
from longhaul.engine import Engine, Task
from longhaul.errors import IdentityError, InterruptedSegment, LonghaulError, SegmentError, StalledError, StorageError
from longhaul.history import Attempt, History
from longhaul.identity import accepted_identities, identity_of
from longhaul.job import Job
from longhaul.judge import Judgement, has_newer, is_finished, judge
from longhaul.lease import Claim, Lease
from longhaul.outcome import Outcome
from longhaul.pick import pick, refusal
from longhaul.record import Record
from longhaul.slurm import current_job
from longhaul.store import Checkpoint, Store
from longhaul.work import Work, describe_done

# A holder that works to its own end needs its length and a little more.
WAITING_SECONDS = 60.0


def run_segment(job: Job, engine: Engine) -> Record:
    """Brings the run forward by one segment and writes its record; LonghaulError says why it could not.

    If the process dies anywhere inside, the next attempt goes on from the newest good checkpoint.
    """
    seconds = job.run.segment_minutes * 60
    job.tell(f"engine {engine.name}, {job.run.segment_minutes:g} minutes, attempt {job.driver_attempt}: {job.run.note}")
    with Alarm() as alarm:

        def leave_if_told() -> None:
            if alarm.heard:
                raise InterruptedSegment(f"runs.{job.run.name}: told to leave ({alarm.heard[-1].name}) while waiting")

        patience = 1.5 * seconds + WAITING_SECONDS
        with lease.take(job.places.lease, job.segment, patience, job.tell, leave_if_told) as held:
            return _Segment(job, engine, held, alarm).run()


@dataclass
class _Segment:
    """The steps of one attempt while the lease is held."""

    job: Job
    engine: Engine
    held: Lease
    alarm: Alarm

    def __post_init__(self) -> None:
        self.store = Store(self.job.places.checkpoints)
        self.history = History(self.job.places.history)
        self.identity = identity_of(self.job.run, self.job.keys, self.job.base)

    def run(self) -> Record:
        self.held.confirm()
        for claim in self.held.earlier_claims():
            self._close_died_attempt(claim)
        self.held.forget_earlier()
        self._clean()
        origin = self._pick()
        record = self._settled(origin)
        if record is None:
            self._brake()
            record = self._work(origin)
        self.held.confirm()
        record.write(self.job.places.record(self.job.segment))
        done = f"{record.progress.done:.10g} {record.progress.unit}"
        self.job.tell(f"{record.outcome.value}: {done}, checkpoint {record.checkpoint}")
        return record

    def _clean(self) -> None:
        """Removes what killed attempts left half done."""
        places = self.job.places
        with fs.storage_errors(places.root):
            places.work.mkdir(parents=True, exist_ok=True)
            places.checkpoints.mkdir(parents=True, exist_ok=True)
            places.segments.mkdir(parents=True, exist_ok=True)
            left = self.store.remove_leftovers() + final.remove_leftovers(places)
            for desk in places.work.iterdir():
                if desk.name < f"{self.held.claim.token:06d}":  # never that of a successor, should we have slept here
                    fs.remove_tree(desk)
                    left.append(f"work/{desk.name}")
        if left:
            self.job.tell(f"removed what a killed attempt left half done: {', '.join(sorted(left))}")
        if places.work.stat().st_dev != places.checkpoints.stat().st_dev:
            raise StorageError(
                f"{places.checkpoints}: on another file system than {places.work}; a checkpoint is shown by a rename, "
                f"which needs one file system; move or link {places.root} as a whole"
            )

    def _pick(self) -> Checkpoint | None:
        accepted = accepted_identities(self.job.places.accepted) | {self.identity.digest}
        # A later segment is queued only after an earlier one left a checkpoint, whatever the user has removed since.
        has_worked = self.job.segment > 1 or any(attempt.to_checkpoint for attempt in self.history.attempts())
        began = time.monotonic()
        try:
            origin = pick(self.store, self.job.run.name, accepted.__contains__, self.job.tell, has_worked)
        except IdentityError as error:
            raise IdentityError(refusal(self.job.run.name, self.store.readable()[-1], self.identity)) from error
        if origin is None:
            self.job.tell("starting from nothing: the run has no checkpoint yet")
        else:
            self.held.confirm()
            self.store.mend_links(origin)
            seconds = time.monotonic() - began
            self.job.tell(f"going on from {origin.folder} ({describe_done(origin)}), verified in {seconds:.2f} s")
        return origin

    def _settled(self, origin: Checkpoint | None) -> Record | None:
        """The record of a segment that needs no work: the run is finished, or an earlier job did this segment."""
        if origin is None:
            return None
        if is_finished(origin, self.job.run.goal):
            self._write_final(origin)
            has_worked = self.job.segment <= origin.passport.segment
            return self._record(Outcome.FINISHED, origin, has_worked)
        done = {attempt.segment for attempt in self.history.attempts() if _stands(attempt, origin)}
        if origin.passport.segment > self.job.segment or self.job.segment in done:
            self.job.tell("this segment's work is already done: the record is made anew from the store")
            return self._record(Outcome.PAUSED, origin, has_worked=True)
        return None

    def _brake(self) -> None:
        """Within one call of snakemake, no further blind attempt after several without a step forward."""
        allowed = self.job.run.attempts_without_progress
        tries = [attempt for attempt in self.history.attempts() if attempt.segment == self.job.segment]
        recent = tries[-(self.job.driver_attempt - 1) :] if self.job.driver_attempt > 1 else []
        idle = 0
        for attempt in recent:
            idle = 0 if attempt.has_advanced else idle + 1
        if idle >= allowed:
            raise StalledError(
                f"runs.{self.job.run.name}: {idle} attempts without a step forward, no further one is made; last: "
                f"{recent[-1].message}; mend the cause, then start snakemake again"
            )

    def _work(self, origin: Checkpoint | None) -> Record:
        work = self._new_work(origin)
        error: LonghaulError | None = None
        try:
            work.run()
            judgement = self._with_disk(judge(work), work)
        except OSError:
            self.held.confirm()  # a successor that took us for dead has removed our desk
            raise
        except LonghaulError as raised:
            error, judgement = raised, Judgement(Outcome.FAILED, str(raised))
        self.held.confirm()
        self._close(work, judgement, error)
        if error is not None:
            raise error
        if not judgement.outcome.settles or work.last is None:
            kind = InterruptedSegment if judgement.outcome is Outcome.INTERRUPTED else SegmentError
            raise kind(f"runs.{self.job.run.name}: {judgement.message}")
        if judgement.outcome is Outcome.FINISHED:
            self._write_final(work.last)
        return self._record(judgement.outcome, work.last, has_worked=True)

    def _close(self, work: Work, judgement: Judgement, error: LonghaulError | None) -> None:
        """Clears the desk, which may be what fills the disk, and adds the attempt to the history."""
        root = work.task.desk.root
        try:
            with fs.storage_errors(root):
                fs.remove_tree(root)
            self.history.append(self._attempt(work, judgement))
        except StorageError:
            if error is None:  # else it would hide the first one
                raise

    def _new_work(self, origin: Checkpoint | None) -> Work:
        run = self.job.run
        seconds = run.segment_minutes * 60
        deadline = deadline_for(seconds, current_job())
        margin = learn_margin(self.history.attempts(), seconds, run.first_margin_seconds)
        self.job.tell(f"time: {deadline.left_seconds():.0f} s, told to stop {margin.stop_seconds:.1f} s before the end")
        desk = Desk(self.job.places.work / f"{self.held.claim.token:06d}")
        with fs.storage_errors(desk.root):
            desk.prepare()
        task = Task(run, self.job.segment, origin, desk, deadline.unix(margin.publish_seconds))
        return Work(
            self.job, self.engine, task, self.store, self.held, self.identity, deadline, margin, self.alarm
        )  # fmt: skip

    def _write_final(self, checkpoint: Checkpoint) -> None:
        if final.is_current(self.job.places, checkpoint):
            return
        final.write(self.job.places, checkpoint, self.engine.finish, self.history.attempts(), self.held.confirm)
        self.job.tell(f"results are in {self.job.places.final}")

    def _record(self, outcome: Outcome, checkpoint: Checkpoint, has_worked: bool) -> Record:
        run, segment = self.job.run.name, self.job.segment
        return Record(run, segment, outcome, has_worked, checkpoint.name, checkpoint.passport.progress, utc_now())

    def _with_disk(self, judgement: Judgement, work: Work) -> Judgement:
        """A program that failed on a full disk says so in its own words only; the bytes are added here."""
        needed = sum(entry.size_bytes for entry in work.last.passport.files.values()) if work.last else 0
        free = fs.free_bytes(self.job.places.root)
        if judgement.outcome.settles or free > max(needed, 1024 * 1024):
            return judgement
        missing = max(needed, 1024 * 1024) - free
        disk = f"{self.job.places.root}: the disk is full, {free:,} bytes free, at least {missing:,} missing"
        return Judgement(judgement.outcome, f"{judgement.message}; {disk}")

    def _attempt(self, work: Work, judgement: Judgement) -> Attempt:
        origin, last = work.task.origin, work.last
        advanced = last is not None and has_newer(last, origin)
        progress = last.passport.progress if last else None
        return Attempt(
            token=self.held.claim.token,
            segment=self.job.segment,
            driver_attempt=self.job.driver_attempt,
            outcome=judgement.outcome,
            started_utc=work.started_utc,
            ended_utc=utc_now(),
            from_checkpoint=origin.name if origin else None,
            to_checkpoint=last.name if last and advanced else None,
            progress_from=origin.passport.progress.done if origin else 0.0,
            progress_to=progress.done if progress else 0.0,
            unit=progress.unit if progress else "",
            work_seconds=round(time.monotonic() - work.started, 3),
            saves=work.saves,
            save_seconds=round(work.save_seconds, 3),
            stop_seconds=None if work.stop_seconds is None else round(work.stop_seconds, 3),
            unused_seconds=round(work.deadline.left_seconds(), 3),
            exit_code=work.exit_code,
            host=self.held.claim.host,
            pid=os.getpid(),
            slurm_job=self.held.claim.slurm_job,
            message=judgement.message,
        )

    def _close_died_attempt(self, previous: Claim) -> None:
        """A holder that did not release was killed: it cannot write its line any more, so a successor does."""
        attempts = self.history.attempts()
        if previous.released_utc or any(attempt.token == previous.token for attempt in attempts):
            return
        made = [checkpoint for checkpoint in self.store.readable() if checkpoint.passport.token == previous.token]
        self.history.append(_died(previous, made, attempts))


def _stands(attempt: Attempt, origin: Checkpoint) -> bool:
    """True if the attempt settled its segment and its work has not been lost to a bad checkpoint since."""
    left = attempt.to_checkpoint or attempt.from_checkpoint
    if not attempt.outcome.settles or left is None:
        return False
    return int(left.partition("_")[0]) <= origin.passport.sequence


def _died(claim: Claim, made: list[Checkpoint], attempts: list[Attempt]) -> Attempt:
    last = made[-1] if made else None
    before = attempts[-1].progress_to if attempts else 0.0
    return Attempt(
        token=claim.token,
        segment=claim.segment,
        driver_attempt=1,
        outcome=Outcome.DIED,
        started_utc=claim.started_utc,
        ended_utc=last.passport.created_utc if last else claim.started_utc,
        from_checkpoint=next((attempt.to_checkpoint for attempt in reversed(attempts) if attempt.to_checkpoint), None),
        to_checkpoint=last.name if last else None,
        progress_from=before,
        progress_to=last.passport.progress.done if last else before,
        unit=last.passport.progress.unit if last else "",
        work_seconds=last.passport.work_seconds if last else 0.0,
        saves=len(made),
        save_seconds=0.0,
        stop_seconds=None,
        unused_seconds=None,
        exit_code=None,
        host=claim.host,
        pid=claim.pid,
        slurm_job=claim.slurm_job,
        message="the job was killed; what it had published counts",
    )
