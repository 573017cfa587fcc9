"""Makes checkpoints of the states that the program of an attempt hands over: passport, publication, pruning."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from unbroken import __version__
from unbroken.engines.base import Engine
from unbroken.errors import ForeignFolderError, SegmentError, StorageError
from unbroken.program.contract import HandedOver
from unbroken.program.unpublished import noted
from unbroken.runs.checkpoint import Checkpoint, describe_done
from unbroken.runs.claim import Claim
from unbroken.runs.identity import Identity
from unbroken.runs.passport import Passport
from unbroken.runs.progress import Handover, Progress
from unbroken.runs.store import Store
from unbroken.segment.job import Job
from unbroken.segment.second_place import SecondPlaceCopier
from unbroken.slurm.this_job import SlurmJob
from unbroken.system.clock import utc_now
from unbroken.system.digests import preferred_algorithm
from unbroken.system.host import this_host


class Writer(Protocol):
    """In whose name checkpoints are published: the holder of the lease, for itself or for one that was killed."""

    @property
    def claim(self) -> Claim: ...

    @property
    def is_lost(self) -> bool: ...

    def confirm(self) -> None: ...


@dataclass
class Publisher:
    """Makes the checkpoints of one attempt; the fields below the line are what came of it, good after an exception."""

    job: Job
    engine: Engine
    store: Store
    writer: Writer
    identity: Identity
    environment: Mapping[str, Mapping[str, object]]  # what the program was started in
    slurm_job: SlurmJob | None
    # ---
    last: Checkpoint | None  # at first the one that the attempt goes on from
    saves: int = 0
    save_seconds: float = 0.0
    already_worked_seconds: float = 0.0
    started_utc: str = field(default_factory=utc_now)
    doubtful: Checkpoint | None = None  # newer than what the attempt goes on from, and nothing came of it
    copier: SecondPlaceCopier | None = None  # who copies them to a second place, and must not lose one meanwhile
    clock: Callable[[], float] = time.monotonic  # without the time in which the job was stopped

    def __post_init__(self) -> None:
        self._started = self.clock() - self.already_worked_seconds
        # Its program may read it for as long as it works.
        self._origin = self.last.name if self.last else ""

    @property
    def worked_seconds(self) -> float:
        """So far; not those in which the job was stopped."""
        return self.clock() - self._started

    def publish(self, found: HandedOver, has_ended_done: bool = False) -> None:
        """Makes a checkpoint of a state; StorageError, CheckpointError or SegmentError if it cannot be one.

        `has_ended_done`: the program is gone, with an exit code that says that the goal is reached.
        """
        began = self.clock()
        handover = self._judged(found, is_its_last=has_ended_done and found.draft.name == "loose")
        self._refuse_regress(handover)
        found = noted(found, handover)
        self.last = self.store.publish(found.taken().draft, self._passport(handover), self.writer.confirm)
        found.forget()
        seconds = self.clock() - began
        self.saves += 1
        self.save_seconds = max(self.save_seconds, seconds)
        self.job.tell(f"checkpoint {self.last.name} ({describe_done(self.last)}) published in {seconds:.2f} s")
        if self.copier is not None:
            self.copier.wake()
        self.writer.confirm()
        self._set_doubtful_aside()
        self.prune({self._origin} if self._origin else ())

    def _set_doubtful_aside(self) -> None:
        """Now that there is a checkpoint after it, made from the one before."""
        if self.doubtful is None:
            return
        reason = f"no attempt came forward from it; from {self._origin}, the one before, one did"
        target = self.store.quarantine(self.doubtful.name, reason, is_whole=True)
        self.job.tell(f"set aside {self.doubtful.name}: {reason}; it is in {target}")
        self.doubtful = None

    def prune(self, spared: Collection[str] = ()) -> None:
        """Removes old checkpoints; what cannot be removed now is told, and tried again after the next save."""
        if self.copier is not None:
            spared = {*spared, self.copier.busy}
        try:
            left = self.store.prune(self.job.run.keep, self.job.run.milestone_every, spared, self.writer.confirm)
        except (OSError, StorageError, ForeignFolderError) as error:
            left = [str(error)]
        for why in left:
            self.job.tell(f"an old checkpoint is not removed yet ({why}); a later save tries again")

    def _judged(self, found: HandedOver, is_its_last: bool) -> Handover:
        """What the checkpoint says of itself."""
        if found.is_judged and found.handover is not None:
            return found.handover
        handover = self._with_goal(found.handover) if found.handover else self._counted(is_its_last)
        return replace(handover, is_finished=_is_finished(found, handover, is_its_last))

    def _counted(self, is_its_last: bool) -> Handover:
        """For a program that says nothing of its progress: its checkpoints are counted.

        They are no measure of the goal, which is noted only when the program ends by calling it reached.
        """
        before = self.last.passport.progress.done if self.last else 0.0
        return Handover(Progress(before + 1, self.job.run.goal if is_its_last else None, "checkpoints"))

    def _with_goal(self, handover: Handover) -> Handover:
        progress = handover.progress
        if progress.goal is not None or self.job.run.goal is None:
            return handover
        return replace(handover, progress=replace(progress, goal=self.job.run.goal))

    def _refuse_regress(self, handover: Handover) -> None:
        done = handover.progress.done
        before = self.last.passport.progress.done if self.last else 0.0
        if self.last and done < before:
            raise SegmentError(
                f"the program handed over {done:.10g} after {before:.10g} {handover.progress.unit}: it did not go on "
                f"from {self.last.folder} (UNBROKEN_RESUME); nothing of it was kept; "
                f"see {self.job.log}"
            )

    def _passport(self, handover: Handover) -> Passport:
        run, parent = self.job.run, self.last
        job = self.slurm_job
        return Passport(
            run=run.name,
            engine=run.engine,
            segment=self.job.segment,
            sequence=self.store.last_sequence() + 1,
            token=self.writer.claim.token,
            parent=parent.name if parent else None,
            parent_digest=parent.passport.digest if parent else None,
            progress=handover.progress,
            is_finished=handover.is_finished,
            is_best=handover.is_best,
            algorithm=handover.algorithm or preferred_algorithm(),
            files=handover.digests,
            identity=self.identity.digest,
            identity_parts=self.identity.parts,
            versions={"unbroken": __version__, **self.engine.versions(), **handover.versions},
            host=this_host().to_json(),
            slurm_job=job.to_json() if job else None,
            attempt_started_utc=self.started_utc,
            created_utc=utc_now(),
            work_seconds=round(self.worked_seconds, 3),
            save_seconds=handover.save_seconds,
            note=run.note,
            is_milestone=handover.is_milestone,
            environment=self.environment,
            adopted=parent.passport.adopted if parent else None,
        )


def _is_finished(found: HandedOver, handover: Handover, is_its_last: bool) -> bool:
    """By its own word, by its count, or by exit code 0 where its count does not speak against that."""
    says_less = found.handover is not None and handover.progress.goal is not None
    says_so = handover.is_finished or handover.progress.is_finished
    return says_so or (is_its_last and not says_less)
