"""Recovery: the next attempt publishes what killed ones had complete, adds their lines, and removes what they left."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from unbroken.engines.base import Engine, Task, When
from unbroken.errors import (
    CheckpointError,
    ConfigError,
    ForeignFolderError,
    OutageError,
    SegmentError,
    StorageError,
    UnbrokenError,
)
from unbroken.job.attempt import Job
from unbroken.job.publisher import Computation, Publisher
from unbroken.program.contract import AttemptFolder
from unbroken.program.guard import MARK, marked
from unbroken.program.handover import HandedOver, noted_states
from unbroken.slurm.queue import ended
from unbroken.store import attempts
from unbroken.store import results as final
from unbroken.store.checkpoint import Checkpoint, describe_done
from unbroken.store.checkpoints import Store
from unbroken.store.claim import Claim, Life, claim_path, life_of
from unbroken.store.history import History
from unbroken.store.layout import RunFolder
from unbroken.store.lease import Lease
from unbroken.store.own_folder import confirm_all_own, confirm_own
from unbroken.store.run import Identity
from unbroken.store.times import FORMAT
from unbroken.system import disk, fs
from unbroken.system.clock import unix_seconds
from unbroken.system.host import boot_id

logger = logging.getLogger(__name__)

# What a killed attempt left may be half made in any way; a full disk is not its fault, and it waits for the next one.
_CANNOT_BE_SAVED = (
    CheckpointError, SegmentError, ForeignFolderError, OutageError,
    OSError, ValueError, KeyError, TypeError, IndexError, AttributeError,
)  # fmt: skip
# How long the guards of an attempt that has just died may take.
LEAVING_SECONDS = 5.0
LOOK_SECONDS = 0.1


def make_folders(places: RunFolder) -> None:
    """Make the folders of a run that its owner writes into; ForeignFolderError if one is not its own."""
    with fs.storage_errors(places.root):
        for folder in (places.work, places.checkpoints, places.segments):
            folder.mkdir(parents=True, exist_ok=True)
    confirm_all_own(places.own)


def leave_note(attempt_folder: AttemptFolder, origin: Checkpoint | None, made: Computation) -> dict[str, object]:
    """Note in a new attempt folder what it computes, from which checkpoint it resumes, and its save folder."""
    identity = {"identity": made.identity.digest, "parts": dict(made.identity.parts)}
    resumed = {"origin": origin.name if origin else None, "save_inode": attempt_folder.open_save().inode}
    note: dict[str, object] = {**resumed, **identity, "environment": dict(made.environment)}
    attempt_folder.note.write_text(FORMAT.text(note))
    return note


@dataclass(frozen=True)
class Recovery:
    """Recover what earlier attempts at a run left behind; only the owner of the lease may use this.

    Removing may fail; it never ends work.
    """

    job: Job
    engine: Engine
    held: Lease
    store: Store

    def prepare_folders(self) -> None:
        """Make the folders of the run, without what killed attempts left half done in them."""
        places = self.job.places
        make_folders(places)
        try:
            _log_removed(self.store.remove_leftovers() + final.remove_leftovers(places))
        except OSError as error:
            _log_left(places.root, str(error))

    def recover(self, origin: Checkpoint | None) -> Checkpoint | None:
        """Publish what killed attempts left, add their lines to the history and remove their folders.

        Return the newest checkpoint, which is `origin` if they left nothing.
        """
        claims = self.held.earlier_claims()
        for claim in claims:
            self._name_orphans(claim)
        for claim in claims:
            origin = self._salvaged(claim, origin)
        self._reclaim(claims, origin)
        attempts.note_died(History(self.job.places.history), self.held, self.store)
        self.held.forget_earlier()
        self.remove_attempt_folders()
        return origin

    def remove_attempt_folders(self) -> None:
        """Remove those of attempts before this one, once what was complete in them is saved."""
        work = self.job.places.work
        confirm_own(work)
        try:
            # Not our own, nor that of a successor, should we have slept here.
            before = [folder for folder in work.iterdir() if folder.name < f"{self.held.claim.token:06d}"]
        except OSError as error:
            _log_left(work, str(error))
        else:
            _log_removed([f"work/{folder.name}" for folder in before if _is_removed(folder)])

    def close(self, task: Task) -> None:
        """Remove the folder of an attempt whose program is gone, without what the engine takes out of it."""
        root = task.attempt_folder.root
        task.attempt_folder.close()
        try:
            self.engine.reclaim(task, is_program_gone=True)
        except (OSError, UnbrokenError) as error:
            logger.warning(f"{root}: stays, what is in it could not be taken out: {error}")
        else:
            self.remove(root)

    def remove(self, root: Path) -> None:
        """Remove the folder that this attempt works in."""
        try:
            confirm_own(root.parent)
        except (ForeignFolderError, OSError) as error:
            _log_left(root, str(error))
        else:
            _is_removed(root)

    # --- what is complete ---

    def _salvaged(self, claim: Claim, origin: Checkpoint | None) -> Checkpoint | None:
        """Publish what an attempt that resumed from `origin` left; return the newest checkpoint."""
        folder = AttemptFolder(self.job.places.work / f"{claim.token:06d}")
        if (made := self._noted(folder, claim, origin)) is None:
            return origin
        publisher = Publisher(
            replace(self.job, segment=claim.segment), self.engine, self.store, claim.token, self.held.confirm, made,
            None, origin, started_utc=claim.started_utc,
            already_worked_seconds=_worked_seconds(self.held.folder, claim),
        )  # fmt: skip
        try:
            for found in self._states(self._task(claim.segment, origin, folder)):
                publisher.publish(found)
        except _CANNOT_BE_SAVED as error:
            if isinstance(error, OSError) and disk.is_full(error):
                left = f"what the killed attempt {claim.token} left is not saved yet, and stays where it is"
                raise StorageError(f"{folder.root}: {error.strerror or 'no room left'}: {left}") from error
            # It is made again.
            said = str(error) if isinstance(error, (UnbrokenError, OSError)) else repr(error)
            nothing = "nothing more" if publisher.saves else "nothing"
            logger.info(f"{nothing} of the killed attempt {claim.token} could be saved: {said}")
        if publisher.saves and publisher.last is not None:
            logger.info(f"saved from the killed attempt {claim.token}: {describe_done(publisher.last)}")
        return publisher.last

    def _noted(self, attempt_folder: AttemptFolder, claim: Claim, origin: Checkpoint | None) -> Computation | None:
        """Return the note of an attempt that resumed from `origin`; None of another, which has nothing to add to it."""
        try:
            note = FORMAT.read(attempt_folder.note)
            if "identity" not in note:  # it ended while it made the results
                return None
            made = Computation(Identity(note["identity"], note["parts"]), note.get("environment", {}))
            attempt_folder.save_inode = int(note["save_inode"])
        except FileNotFoundError:  # it ended before its work
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.info(f"nothing of the killed attempt {claim.token} could be saved: {attempt_folder.note}: {error!r}")
            return None
        is_its_own = origin is not None and origin.passport.token == claim.token
        return made if is_its_own or note["origin"] == (origin.name if origin else None) else None

    def _task(self, segment: int, origin: Checkpoint | None, folder: AttemptFolder) -> Task:
        return Task(self.job.run, segment, origin, folder, time.time())

    def _states(self, task: Task) -> list[HandedOver]:
        """Return what the engine finds, or else what was being published: never both, whose outputs may overlap."""
        origin = task.origin.passport if task.origin else None
        known = [(origin.progress.done, origin.is_finished)] if origin else []
        states = [found for found in self.engine.states(task, When.KILLED) if _is_further(found, known)]
        known += [(each.handover.progress.done, each.handover.is_finished) for each in states if each.handover]
        noted = noted_states(task.attempt_folder)
        return [found for found in noted if _is_further(found, known)] or states

    # --- what outlives it ---

    def _reclaim(self, claims: Sequence[Claim], origin: Checkpoint | None) -> None:
        """Let the engine take out of the attempt folders before ours what outlives them, the newest first."""
        known = {claim.token: claim for claim in claims}
        names = sorted((path.name for path in self.job.places.work.iterdir() if path.name.isdecimal()), key=int)
        for name in reversed(names):
            if (token := int(name)) < self.held.claim.token:
                folder = AttemptFolder(self.job.places.work / name)
                with fs.storage_errors(folder.root):
                    task = self._task(self.job.segment, origin, folder)
                    self.engine.reclaim(task, is_program_gone=self._is_program_gone(token, known.get(token)))

    def _name_orphans(self, claim: Claim) -> None:
        """Log which processes of an attempt are still there on this machine, and what to type; end none of them.

        There are some only where all were killed at once that would have ended them (`guard`), outside of a job of
        Slurm, which ends its own.
        """
        if claim.host == platform.node() and (pids := self._left_by(claim.token)):
            numbers = " ".join(map(str, pids))
            logger.info(
                f"processes of {claim.describe()} are still there; if they shall not be, type kill -KILL {numbers}"
            )

    def _is_program_gone(self, token: int, claim: Claim | None) -> bool:
        """Return True if no process of an earlier attempt can write any more, by what this machine or Slurm shows.

        An attempt whose claim is forgotten has ended by itself.
        """
        if claim is None or claim.released_utc:
            return not self._left_by(token)
        if claim.host == platform.node() and claim.boot_id != boot_id():
            return True
        if life_of(claim) is Life.GONE:
            return not self._left_by(token)
        job, cluster = claim.slurm_job, claim.slurm_cluster
        found = ended(job, unix_seconds(claim.started_utc), cluster) if job else None
        return found is not None and found.is_certainly_over

    def _left_by(self, token: int) -> list[int]:
        """Return the processes with its save folder in their environment, which is of one attempt alone."""
        save = (self.job.places.work / f"{token:06d}" / "save").resolve()
        give_up = time.monotonic() + LEAVING_SECONDS
        while True:
            pids = sorted(pid for pid, _ in marked(f"{MARK}={save}"))
            if not pids or time.monotonic() > give_up:
                return pids
            time.sleep(LOOK_SECONDS)


def _is_removed(folder: Path) -> bool:
    if why := fs.remove_tree(folder):
        _log_left(folder, why)
    return not why


def _log_removed(names: Sequence[str]) -> None:
    if names:
        logger.info(f"removed the unfinished files of a killed attempt: {', '.join(sorted(names))}")


def _log_left(folder: Path, why: str) -> None:
    logger.info(f"{folder}: not removed yet ({why}); nobody needs it, and a later segment tries again")


def _is_further(found: HandedOver, known: Sequence[tuple[float, bool]]) -> bool:
    """Return True if a state is beyond those that are known, each by its progress and whether it is finished."""
    if found.handover is None:
        return True
    now, is_finished = found.handover.progress.done, found.handover.is_finished
    return all(now > done or (now == done and is_finished and not was) for done, was in known)


def _worked_seconds(lease: Path, claim: Claim) -> float:
    """Return how long the attempt was running, by its last heartbeat."""
    with suppress(OSError):
        return max(0.0, claim_path(lease, claim.token).stat().st_mtime - unix_seconds(claim.started_utc))
    return 0.0


def refuse_unfinished(places: RunFolder) -> None:
    """Raise ConfigError if an import was killed: its run has no checkpoint yet, and must not begin at the start."""
    sources = list(attempts.unfinished_imports(places.work).values())
    if not sources:
        return
    source, run = sources[-1], places.name
    raise ConfigError(
        [
            f"runs.{run}: the import of {source} was interrupted, and the run has no checkpoint; type: "
            f"unbroken import {run} --from {source} (or begin at the start: unbroken restart {run})"
        ]
    )
