"""Salvage: what a killed attempt had complete in its folder is published in its name by the job that takes over."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from unbroken.engines.base import Engine, Task
from unbroken.errors import (
    CheckpointError,
    ForeignFolderError,
    OutageError,
    SegmentError,
    StorageError,
    UnbrokenError,
)
from unbroken.program.contract import AttemptFolder, HandedOver
from unbroken.program.unpublished import noted_states
from unbroken.runs.checkpoint import Checkpoint, describe_done
from unbroken.runs.claim import Claim
from unbroken.runs.identity import Identity
from unbroken.runs.lease import Lease
from unbroken.runs.store import Store
from unbroken.segment.job import Job
from unbroken.segment.publisher import Publisher
from unbroken.system import fs, jsontext
from unbroken.system.clock import age_seconds

# What a killed attempt left may be half made in any way; a full disk is not its fault, and it waits for the next one.
_CANNOT_BE_SAVED = (
    CheckpointError, SegmentError, ForeignFolderError, OutageError,
    OSError, ValueError, KeyError, TypeError, IndexError, AttributeError,
)  # fmt: skip


@dataclass(frozen=True)
class Estate:
    """A killed attempt, in whose name its successor publishes."""

    claim: Claim
    confirm: Callable[[], None]
    is_lost: bool = False


@dataclass(frozen=True)
class Note:
    """What an attempt computes, and what its program was started in."""

    identity: Identity
    environment: Mapping[str, Mapping[str, object]]


def leave_note(attempt_folder: AttemptFolder, origin: Checkpoint | None, made: Note) -> None:
    """Notes in a new attempt folder what it computes, from which checkpoint it goes on, and its save folder."""
    identity = {"identity": made.identity.digest, "parts": dict(made.identity.parts)}
    note = {"origin": origin.name if origin else None, **identity, "environment": dict(made.environment)}
    attempt_folder.note.write_text(json.dumps({**note, "save_inode": attempt_folder.open_save().inode}) + "\n")


def salvage(
    job: Job, engine: Engine, held: Lease, store: Store, origin: Checkpoint | None, claims: Sequence[Claim]
) -> Checkpoint | None:
    """Publishes what the killed attempts left; returns the newest checkpoint, `origin` if they left nothing."""
    for claim in claims:
        attempt_folder = AttemptFolder(job.places.work / f"{claim.token:06d}")
        if claim.token < held.claim.token and (made := _noted(attempt_folder, claim, origin, job.tell)) is not None:
            origin = _Salvage(job, engine, held, store, origin).of(claim, attempt_folder, made)
    return origin


def _noted(
    attempt_folder: AttemptFolder, claim: Claim, origin: Checkpoint | None, tell: Callable[[str], None]
) -> Note | None:
    """The note of an attempt that went on from `origin`; None if it did not, and has nothing to add to it."""
    try:
        note = jsontext.parse(attempt_folder.note.read_text())
        made = Note(Identity(note["identity"], note["parts"]), note.get("environment", {}))
        attempt_folder.save_inode = int(note["save_inode"])
    except FileNotFoundError:  # it ended before its work
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        tell(f"nothing of the killed attempt {claim.token} could be saved: {attempt_folder.note}: {error!r}")
        return None
    is_its_own = origin is not None and origin.passport.token == claim.token
    return made if is_its_own or note["origin"] == (origin.name if origin else None) else None


@dataclass(frozen=True)
class _Salvage:
    job: Job
    engine: Engine
    held: Lease
    store: Store
    origin: Checkpoint | None

    def of(self, claim: Claim, attempt_folder: AttemptFolder, made: Note) -> Checkpoint | None:
        saved: list[Checkpoint] = []
        try:
            for checkpoint in self._published(claim, attempt_folder, made):
                saved.append(checkpoint)
        except _CANNOT_BE_SAVED as error:
            if isinstance(error, OSError) and fs.is_full(error):
                left = f"what the killed attempt {claim.token} left is not saved yet, and stays where it is"
                raise StorageError(f"{attempt_folder.root}: {error.strerror or 'no room left'}: {left}") from error
            # It is made anew.
            said = str(error) if isinstance(error, (UnbrokenError, OSError)) else repr(error)
            nothing = "nothing more" if saved else "nothing"
            self.job.tell(f"{nothing} of the killed attempt {claim.token} could be saved: {said}")
        if saved:
            self.job.tell(f"saved from the killed attempt {claim.token}: {describe_done(saved[-1])}")
        return saved[-1] if saved else self.origin

    def _published(self, claim: Claim, attempt_folder: AttemptFolder, made: Note) -> Iterator[Checkpoint]:
        job, estate = replace(self.job, segment=claim.segment), Estate(claim, self.held.confirm)
        task = Task(job.run, claim.segment, self.origin, attempt_folder, time.time(), tell=self.job.tell)
        publisher = Publisher(
            job, self.engine, self.store, estate, made.identity, made.environment, None, self.origin,
            already_worked_seconds=_worked_seconds(claim, attempt_folder.root), started_utc=claim.started_utc,
        )  # fmt: skip
        for found in self._states(task):
            publisher.publish(found)
            if publisher.last is not None:
                yield publisher.last

    def _states(self, task: Task) -> list[HandedOver]:
        """What the engine finds, or else what was being published: never both, whose outputs may overlap."""
        before = self.origin.passport.progress.done if self.origin else None
        is_done = self.origin is not None and self.origin.passport.is_finished
        states = [found for found in self.engine.salvage(task) if _is_further(found, before, is_done)]
        kept = noted_states(task.attempt_folder, self.job.tell)
        noted = [found for found in kept if _is_further(found, before, is_done)]
        for found in states:
            if found.handover is not None:
                done, is_done = found.handover.progress.done, found.handover.is_finished
                noted = [each for each in noted if _is_further(each, done, is_done)]
        return noted or states


def _is_further(found: HandedOver, done: float | None, is_done: bool) -> bool:
    if done is None or found.handover is None:
        return True
    now = found.handover.progress.done
    return now > done or (now == done and found.handover.is_finished and not is_done)


def _worked_seconds(claim: Claim, attempt_folder: Path) -> float:
    """How long the attempt was at work, by the last sign of life in its attempt folder."""
    last = _last_change(attempt_folder)
    return max(0.0, age_seconds(claim.started_utc) - max(0.0, time.time() - last))


def _last_change(folder: Path) -> float:
    """Unix time of the newest thing below; a process that still lives there may take away what we look at."""
    last = 0.0
    for base, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with suppress(FileNotFoundError):
                last = max(last, os.lstat(os.path.join(base, name)).st_mtime)
    return last
