"""What already ran elsewhere becomes a run's first checkpoint, under the run's lease as all that writes it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from unbroken import __version__
from unbroken.config.found import absent
from unbroken.engines.base import Engine
from unbroken.engines.foreign import DRAFT, Foreign, Found
from unbroken.errors import CheckpointError, ConfigError, LeaseError, UnbrokenError
from unbroken.runs import begun, lease
from unbroken.runs.adopted import SEGMENT, UNFINISHED, Adopted
from unbroken.runs.checkpoint import Checkpoint
from unbroken.runs.identity import Identity, identity_of
from unbroken.runs.known_formats import refuse_newer
from unbroken.runs.layout import RunFolder
from unbroken.runs.lease import Lease
from unbroken.runs.own_folder import confirm_all_own
from unbroken.runs.passport import Passport
from unbroken.runs.progress import Progress
from unbroken.runs.select import verify
from unbroken.runs.store import Store
from unbroken.segment.job import Job
from unbroken.system import fs
from unbroken.system.clock import utc_now
from unbroken.system.digests import preferred_algorithm
from unbroken.system.flush import flush_tree
from unbroken.system.host import this_host

# The unit where nothing says how far a program is.
COUNTED = "checkpoints"


def adopt(job: Job, engine: Engine, foreign: Foreign, tell: Callable[[str], None]) -> Checkpoint:
    """Publishes the run's first checkpoint, made of `foreign`, and returns it, every byte of it read again.

    ConfigError if the run has checkpoints, or a job holds it; CheckpointError if what is there cannot be taken over.
    Nothing of the user's is changed.  If the process dies inside, there is no checkpoint, or the whole one, and a
    segment that finds none is refused until this is done again.
    """
    run, places = job.run, job.places
    if not foreign.path.exists():
        raise ConfigError(
            [f"{run.name}: --from: {absent(str(foreign.path), Path(), 'there is no such file or folder')}"]
        )
    begun.refuse_missing(places)
    refuse_newer(places)
    _refuse_inside(job, foreign)
    _refuse_begun(job)
    identity = identity_of(run, job.keys, job.base)
    confirm_all_own(places.own)
    try:
        held = lease.take(places.lease, SEGMENT, 0.0, tell)
    except LeaseError as error:
        raise ConfigError([f"{run.name}: {error}"]) from error
    with held, fs.os_errors(places.root):
        held.confirm()
        _refuse_begun(job)
        fs.write_atomic(places.root / UNFINISHED, f"{foreign.path.resolve()}\n")
        checkpoint = _published(job, engine, foreign, held, identity)
        held.confirm()
        (places.root / UNFINISHED).unlink(missing_ok=True)
        held.forget_earlier()  # those of adoptions that were killed
        begun.note(places)
    return checkpoint


def _published(job: Job, engine: Engine, foreign: Foreign, held: Lease, identity: Identity) -> Checkpoint:
    places, store = job.places, Store(job.places.checkpoints)
    with fs.storage_errors(places.root):
        for folder in (places.work, places.checkpoints, places.segments):
            folder.mkdir(parents=True, exist_ok=True)
        confirm_all_own(places.own)
        store.remove_leftovers()
    draft = store.root / fs.unique_name(DRAFT)
    _remove_copies(places)  # of an adoption that was killed
    try:
        with fs.storage_errors(store.root, _size(foreign.path)):
            draft.mkdir()
            with _naming_the_target():
                found = engine.adopt(job.run, foreign, draft)
        _refuse_done(job, found)
        if found.copies is not None:
            held.confirm()
            _put_in_place(places, found.copies)
        published = store.publish(draft, _passport(job, engine, foreign, found, held, identity), held.confirm)
    except UnbrokenError:  # what is refused leaves the run as it was: one that never began
        if not store.names():
            (places.root / UNFINISHED).unlink(missing_ok=True)
        raise
    finally:
        if draft.exists():
            fs.remove_tree(draft)
        _remove_copies(places)
    return verify(published.folder, job.run.name)


def _put_in_place(places: RunFolder, copies: Path) -> None:
    """Make the copies the program's folder; what a first attempt without a checkpoint left there is kept."""
    flush_tree(copies)
    if os.path.lexists(places.output):
        kept = places.replaced / fs.unique_name(places.output.name).lstrip(".")
        kept.parent.mkdir(exist_ok=True)
        os.rename(places.output, kept)
    os.rename(copies, places.output)
    fs.flush_folder(places.root)


def _remove_copies(places: RunFolder) -> None:
    for path in places.root.glob(f".{DRAFT}-*"):
        if fs.is_unique_name(path.name):
            fs.remove_tree(path)


@contextmanager
def _naming_the_target() -> Iterator[None]:
    """A copy that fails names its source first, and a full disk is that of the target."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOENT and error.filename2 is not None:
            raise OSError(error.errno, error.strerror, error.filename2) from error
        raise


def _refuse_begun(job: Job) -> None:
    """Also one whose checkpoints were all set aside, or pruned to their parts."""
    store = Store(job.places.checkpoints)
    names = store.names() or store.archived()
    records = sorted(job.places.segments.glob("[0-9]*.json")) if job.places.segments.is_dir() else []
    if not names and not store.last_sequence() and not records:
        return
    what = names[-1] if names else records[-1].name if records else "checkpoints that were set aside"
    raise ConfigError(
        [
            f"{job.run.name}: has {what} already, and only a run without any can adopt one; nothing was done; "
            f"type: unbroken restart {job.run.name} (sets it aside), or take a new name"
        ]
    )


def _refuse_inside(job: Job, foreign: Foreign) -> None:
    root, path = job.places.root.resolve(), foreign.path.resolve()
    if path == root or root in path.parents:
        raise ConfigError([f"{job.run.name}: --from: found {foreign.path}, which is the run's own; name another"])


def _refuse_done(job: Job, found: Found) -> None:
    """What the settings want decides; where they want nothing, what the program itself says."""
    progress, run = found.handover.progress, job.run
    is_counted = progress.unit == COUNTED
    is_there = run.goal is not None and progress.done >= run.goal and not is_counted
    says_so = (found.handover.is_finished or progress.is_finished) and run.is_content_with(progress)
    if not is_there and not says_so:
        return
    goal = run.goal if run.goal is not None else progress.goal
    wanted = "" if goal is None else f", and the goal is {goal:.10g}"
    raise CheckpointError(
        f"{run.name}: it is at {progress.done:.10g} {progress.unit}{wanted}: nothing is left to do; raise the goal"
    )


def _passport(job: Job, engine: Engine, foreign: Foreign, found: Found, held: Lease, identity: Identity) -> Passport:
    now = utc_now()
    return Passport(
        run=job.run.name,
        engine=job.run.engine,
        segment=SEGMENT,
        sequence=1,
        token=held.claim.token,
        parent=None,
        parent_digest=None,
        progress=_with_goal(found.handover.progress, job.run.goal),
        is_finished=False,
        is_best=False,
        algorithm=found.handover.algorithm or preferred_algorithm(),
        files=found.handover.digests,
        identity=identity.digest,
        identity_parts=identity.parts,
        versions={"unbroken": __version__, **engine.versions(), **found.handover.versions},
        host=this_host().to_json(),
        slurm_job=None,
        attempt_started_utc=now,
        created_utc=now,
        work_seconds=0.0,
        save_seconds=None,
        note=job.run.note,
        adopted=Adopted(os.fspath(foreign.path.resolve()), found.checked, found.not_checked, found.lost),
    )


def _with_goal(progress: Progress, goal: float | None) -> Progress:
    """As the settings want it by now."""
    return progress if goal is None else replace(progress, goal=goal)


def _size(path: Path) -> int:
    return fs.tree_bytes(path) if path.is_dir() else path.stat().st_size
