"""Publish what the program of an attempt hands over, as checkpoints, and the results of a run at its goal.

To make `final/` computes nothing, so it is repeated alone: by the next attempt, or the next start.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from unbroken.engines.base import Engine
from unbroken.errors import (
    ChangedEnvironmentError,
    ForeignFolderError,
    LeaseError,
    ResultsError,
    SegmentError,
    StorageError,
    UnbrokenError,
)
from unbroken.job.attempt import Job, append_traceback
from unbroken.job.copier import Copier
from unbroken.program.environment import changes, described, in_words, refusal
from unbroken.program.handover import HandedOver, noted
from unbroken.slurm.this_job import SlurmJob
from unbroken.store import results as final
from unbroken.store.checkpoint import Checkpoint, Passport, describe_done, passport_of
from unbroken.store.checkpoints import Store
from unbroken.store.history import Attempt, EndCause, EndKind, SegmentEnd
from unbroken.store.progress import Handover, Progress, overshoot
from unbroken.store.run import Identity, RunSpec
from unbroken.system import fs
from unbroken.system.clock import utc_now

logger = logging.getLogger(__name__)

# What an engine that looks for a file or a program meets; no sign of a file server that is away.
_OF_THE_ENGINE = {None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.EINVAL}
AGAIN = "nothing is computed again, the next start repeats this step alone"


@dataclass(frozen=True)
class Computation:
    """Hold the identity of what an attempt computes, and the environment of its program."""

    identity: Identity
    environment: Mapping[str, Mapping[str, object]]


def computation_of(job: Job, identity: Identity, origin: Checkpoint | None) -> Computation:
    """Return what an attempt computes, and log how its environment differs from the one the checkpoint was made in.

    ChangedEnvironmentError in a strict run; the checkpoint is as good as before, and nothing is quarantined.
    """
    parts = described(job.run, job.base)
    if parts:
        logger.info(f"environment: {in_words(parts)}")
    found = changes(job.run, parts, origin.passport) if origin else []
    if found and job.run.environment.is_strict:
        raise ChangedEnvironmentError(refusal(job.run.name, found))
    for line in found:
        logger.info(line)
    return Computation(identity, parts)


@dataclass
class Publisher:
    """Make the checkpoints of one attempt; the fields below the line are its outcome, valid after an exception too."""

    job: Job
    engine: Engine
    store: Store
    token: int  # of the attempt: the owner of the lease publishes for itself, or for one that was killed
    confirm: Callable[[], None]  # raises if this process may not write the run any more
    computation: Computation
    slurm_job: SlurmJob | None
    # ---
    last: Checkpoint | None  # at first the one that the attempt resumes from
    saves: int = 0
    save_seconds: float = 0.0
    already_worked_seconds: float = 0.0
    started_utc: str = field(default_factory=utc_now)
    doubtful: Checkpoint | None = None  # newer than what the attempt resumes from, and nothing came of it
    copier: Copier | None = None  # copies them to the replica; what it is copying must not be pruned
    clock: Callable[[], float] = time.monotonic  # without the time in which the job was stopped

    def __post_init__(self) -> None:
        self._started = self.clock() - self.already_worked_seconds
        # Its program may read it for as long as it works.
        self._origin = self.last.name if self.last else ""

    @property
    def worked_seconds(self) -> float:
        """Return the seconds so far, without those in which the job was stopped."""
        return self.clock() - self._started

    def publish(self, found: HandedOver, *, has_ended_done: bool = False) -> None:
        """Make a checkpoint of a state; StorageError, CheckpointError or SegmentError if it cannot be one.

        `has_ended_done`: the program is gone, with an exit code that says that the goal is reached.
        """
        began = self.clock()
        handover = self._judged(found, is_its_last=has_ended_done and found.is_loose)
        self._refuse_regress(handover)
        found = noted(found, handover)
        self.last = self.store.publish(found.taken().draft, self._passport(handover), self.confirm)
        found.forget()
        seconds = self.clock() - began
        self.saves += 1
        self.save_seconds = max(self.save_seconds, seconds)
        logger.info(f"checkpoint {self.last.name} ({describe_done(self.last)}) published in {seconds:.2f} s")
        if self.copier is not None:
            self.copier.wake()
        self._set_doubtful_aside()
        self.prune({self._origin} if self._origin else ())

    def _set_doubtful_aside(self) -> None:
        """Quarantine the doubtful checkpoint now that there is one after it, made from the one before."""
        if self.doubtful is None:
            return
        self.confirm()
        reason = f"no attempt came forward from it; from {self._origin}, the one before, one did"
        target = self.store.quarantine(self.doubtful.name, reason, is_whole=True)
        logger.info(f"set aside {self.doubtful.name}: {reason}; it is in {target}")
        self.doubtful = None

    def prune(self, spared: Collection[str] = ()) -> None:
        """Remove old checkpoints; log what cannot be removed now, and is tried again after the next save."""
        if self.copier is not None:
            spared = {*spared, self.copier.busy}
        try:
            left = self.store.prune(self.job.run.keep, self.job.run.milestone_every, spared, self.confirm)
        except (OSError, StorageError, ForeignFolderError) as error:
            left = [str(error)]
        for why in left:
            logger.info(f"an old checkpoint is not removed yet ({why}); a later save tries again")

    def _judged(self, found: HandedOver, *, is_its_last: bool) -> Handover:
        """Return what the checkpoint says of itself.

        It is finished by its own word, its count, or exit code 0 where its count does not speak against that.  The
        checkpoints of a program that says nothing of its progress are counted.  They are no
        measure of the goal, which is noted only when the program ends by calling it reached.
        """
        told, run_goal = found.handover, self.job.run.goal
        if told is None:
            goal = run_goal if is_its_last else None
            told = Handover(Progress(self._done_before + 1, goal, "checkpoints"))
        elif found.is_judged:
            return told
        elif told.progress.goal is None:
            told = replace(told, progress=replace(told.progress, goal=run_goal))
        says_less = found.handover is not None and told.progress.goal is not None
        says_so = told.is_finished or told.progress.is_finished
        return replace(told, is_finished=says_so or (is_its_last and not says_less))

    @property
    def _done_before(self) -> float:
        return self.last.passport.progress.done if self.last else 0.0

    def _refuse_regress(self, handover: Handover) -> None:
        done, before = handover.progress.done, self._done_before
        if self.last and done < before:
            raise SegmentError(
                f"the program handed over {done:.10g} after {before:.10g} {handover.progress.unit}: it did not go on "
                f"from {self.last.folder} (UNBROKEN_RESUME); nothing of it was kept; "
                f"see {self.job.log}"
            )

    def _passport(self, handover: Handover) -> Passport:
        job, slurm_job, computation = self.job, self.slurm_job, self.computation
        return passport_of(
            handover,
            self.last,
            **of_run(job.run, self.engine, computation.identity),
            segment=job.segment,
            sequence=self.store.last_sequence() + 1,
            token=self.token,
            slurm_job=slurm_job.to_json() if slurm_job else None,
            attempt_started_utc=self.started_utc,
            work_seconds=round(self.worked_seconds, 3),
            environment=computation.environment,
            imported=self.last.passport.imported if self.last else None,
        )


def of_run(run: RunSpec, engine: Engine, identity: Identity) -> dict[str, Any]:
    """Return the fields of a passport that are the same for all checkpoints of a run."""
    made_by = {"run": run.name, "engine": run.engine, "note": run.note, "versions": engine.versions()}
    return {**made_by, "identity": identity.digest, "identity_parts": identity.parts}


@contextmanager
def engine_errors(
    log: Path, refused: Callable[[str], SegmentError], of_engine: Container[int | None] = ()
) -> Iterator[None]:
    """Turn any other error than an UnbrokenError or OSError into what `refused` makes of its one line.

    An engine may be a third-party package, and a mistake in it must not end the process without a line of history.
    Its traceback is in the log.  `of_engine` are the `errno` of an OSError that are its mistake too.
    """
    try:
        yield
    except UnbrokenError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, OSError) and error.errno not in of_engine:
            raise
        append_traceback(log, error)
        raise refused(f"{type(error).__name__}: {error}") from error


# --- the results ---


def write_results(
    job: Job, engine: Engine, checkpoint: Checkpoint, attempts: Sequence[Attempt], confirm: Callable[[], None]
) -> None:
    """Make `final/` where it is missing.

    Raise LeaseError if the run is another job's by now.  Any other UnbrokenError is logged, and leaves what was there
    before; any other exception becomes one, with its traceback in the log.
    """
    if not engine.fills_final or final.is_current(job.places, checkpoint):
        return
    try:
        with fs.os_errors(job.places.root), engine_errors(job.log, partial(_refused, job, checkpoint), _OF_THE_ENGINE):
            fill, expected = partial(engine.finish, job.run), engine.results(job.run, checkpoint)
            final.write(
                job.places,
                checkpoint,
                fill,
                attempts=attempts,
                confirm=confirm,
                expected=expected.files,
                doubts=expected.doubts,
            )
    except LeaseError:
        raise
    except UnbrokenError as error:
        if isinstance(error, StorageError) and isinstance(error.__cause__, OSError):
            append_traceback(job.log, error.__cause__)
        logger.info(f"the goal is reached ({describe_done(checkpoint)}), but its results were not written; {AGAIN}")
        if isinstance(error, ResultsError) and error.__cause__ is None:  # what was made is not what was expected
            raise _refused(job, checkpoint, str(error)) from error
        raise
    try:
        with fs.os_errors(job.places.root), engine_errors(job.log, partial(_refused, job, checkpoint), _OF_THE_ENGINE):
            doubts, remarks = final.read_doubts(job.places), engine.results(job.run, checkpoint).remarks
    except LeaseError:
        raise
    except UnbrokenError as error:  # they are written all the same
        doubts, remarks = (), [f"what is to be said of them could not be read: {error}"]
    logger.info(f"results are in {job.places.final}{', joined with doubts' if doubts else ''}")
    for line in (*(f"doubt: {each}" for each in doubts), *remarks):
        logger.info(line)
    if line := overshoot(checkpoint.passport.progress, has_resumed=len(attempts) > 0):
        logger.info(line)


def end_without_results(error: UnbrokenError, checkpoint: Checkpoint) -> SegmentEnd:
    """Return the end of an attempt whose results were not written."""
    why = error.text if isinstance(error, ResultsError) else _not_written(checkpoint, str(error))
    return SegmentEnd(kind=EndKind.FAILED, message=why, log=error.log, cause=EndCause.NO_RESULTS)


def _refused(job: Job, checkpoint: Checkpoint, why: str) -> ResultsError:
    return ResultsError(_not_written(checkpoint, why), log=job.log, run=job.run.name)


def _not_written(checkpoint: Checkpoint, why: str) -> str:
    return f"the goal is reached ({describe_done(checkpoint)}), but its results were not written: {why}; {AGAIN}"
