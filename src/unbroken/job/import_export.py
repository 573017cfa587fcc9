"""Import what ran elsewhere as a run's first checkpoint; export a plain folder from which the program resumes alone.

An import is made under the run's lease, like all that writes it.  An export only reads the run.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

from unbroken.config.found import absent
from unbroken.engines.base import Engine
from unbroken.engines.imports import COUNTED, OUTPUT, ImportedFiles, ImportSource
from unbroken.errors import CheckpointError, ConfigError, IdentityError, LeaseError, NoCheckpointError, UnbrokenError
from unbroken.job.attempt import Job
from unbroken.job.publisher import of_run
from unbroken.job.recovery import make_folders
from unbroken.store import attempts, driver_start, lease
from unbroken.store.checkpoint import IMPORT_SEGMENT as SEGMENT
from unbroken.store.checkpoint import Checkpoint, Imported, describe_done, passport_of
from unbroken.store.checkpoints import Store
from unbroken.store.layout import RunFolder
from unbroken.store.lease import Lease
from unbroken.store.own_folder import confirm_all_own
from unbroken.store.progress import Handover
from unbroken.store.run import Identity, RunSpec, identity_of, usable_identities
from unbroken.store.select import refusal, refuse_newer, verify
from unbroken.system import fs
from unbroken.system.clock import utc_now
from unbroken.system.fs import flush_tree

logger = logging.getLogger(__name__)

# Begins the hidden name of the folder in which an import is made.
DRAFT = "import"
README = "EXPORT.txt"


def import_run(job: Job, engine: Engine, source: ImportSource) -> Checkpoint:
    """Publish the run's first checkpoint, made by the engine of `source`, and return it, every byte of it read again.

    ConfigError if the run has checkpoints, or a job holds it; CheckpointError if the files do not fit.  Nothing of the
    source is changed.  If the process dies inside, there is no checkpoint or a complete one, and a segment that finds
    none is refused until the import is repeated.
    """
    run, places = job.run, job.places
    driver_start.refuse_missing(places)
    refuse_newer(places)
    _refuse_source(run, places, source.path)
    _refuse_begun(run, places)
    identity = identity_of(run, job.keys, job.base)
    confirm_all_own(places.own)
    try:
        held = lease.take(places.lease, SEGMENT, 0.0)
    except LeaseError as error:
        raise ConfigError([f"{run.name}: {error}"]) from error
    with held, fs.os_errors(places.root):
        held.confirm()
        _refuse_begun(run, places)
        _note_begun(places, held, source.path)
        checkpoint = _publish(job, engine, source, held, identity)
        held.confirm()
        for folder in attempts.unfinished_imports(places.work):
            fs.remove_tree(folder)
        held.forget_earlier()  # those of imports that were killed
        driver_start.note_begun(places)
    return checkpoint


def _note_begun(places: RunFolder, held: Lease, source: Path) -> None:
    """Leave the note of an attempt: should this process be killed, no segment begins at the start (`recovery`)."""
    make_folders(places)
    folder = places.attempt(held.claim.token)
    folder.mkdir(exist_ok=True)
    attempts.note_import(folder, source)
    fs.flush(places.work)


def _publish(job: Job, engine: Engine, source: ImportSource, held: Lease, identity: Identity) -> Checkpoint:
    run, places = job.run, job.places
    store = Store(places.checkpoints)
    store.remove_leftovers()
    for path in places.root.glob(f".{DRAFT}-*"):  # of imports that were killed
        fs.remove_tree(path)
    scratch = places.root / fs.unique_name(DRAFT)
    draft, output = scratch / "checkpoint", scratch / OUTPUT
    size = fs.tree_bytes(source.path) if source.path.is_dir() else source.path.stat().st_size
    try:
        with fs.storage_errors(places.root, size):
            draft.mkdir(parents=True)
            found = engine.import_files(run, source, draft)
        _refuse_done(run, found)
        if output.exists():
            held.confirm()
            _put_in_place(places, output)
        where = os.fspath(source.path.resolve())
        imported = Imported(where, found.checked, found.not_checked, found.path, found.epoch, found.step)
        progress = found.handover.progress if run.goal is None else replace(found.handover.progress, goal=run.goal)
        first = Handover(
            progress,
            versions=found.handover.versions,
            algorithm=found.handover.algorithm,
            digests=found.handover.digests,
        )
        manifest = passport_of(
            first, None, **of_run(run, engine, identity), segment=SEGMENT, sequence=1, token=held.claim.token,
            slurm_job=None, attempt_started_utc=utc_now(), work_seconds=0.0, imported=imported,
        )  # fmt: skip
        published = store.publish(draft, manifest, held.confirm)
    except UnbrokenError:  # what is refused leaves the run as it was: one that never began
        if not store.names():
            fs.remove_tree(places.attempt(held.claim.token))
        raise
    finally:
        fs.remove_tree(scratch)
    return verify(published.folder, run.name)


def _put_in_place(places: RunFolder, output: Path) -> None:
    """Make the copies the program's folder; what a first attempt without a checkpoint left there is kept."""
    flush_tree(output)
    if os.path.lexists(places.output):
        kept = places.replaced / fs.unique_name(places.output.name).lstrip(".")
        kept.parent.mkdir(exist_ok=True)
        os.rename(places.output, kept)
    os.rename(output, places.output)
    fs.flush(places.root)


# --- what is refused ---


def _refuse_source(run: RunSpec, places: RunFolder, path: Path) -> None:
    if not path.exists():
        raise ConfigError([f"{run.name}: --from: {absent(str(path), Path(), 'there is no such file or folder')}"])
    if path.resolve().is_relative_to(places.root.resolve()):
        raise ConfigError([f"{run.name}: --from: found {path}, which is the run's own; name another"])


def _refuse_begun(run: RunSpec, places: RunFolder) -> None:
    """Raise ConfigError if the run has worked, also if its checkpoints were quarantined or pruned since."""
    store = Store(places.checkpoints)
    records = sorted(path.name for path in places.segments.glob("[0-9]*.json"))
    if names := [*records, *store.archived(), *store.names()]:
        what = names[-1]
    elif store.last_sequence():
        what = "quarantined checkpoints"
    else:
        return
    raise ConfigError(
        [
            f"{run.name}: has {what} already, and only a run without checkpoints can import; nothing was done; type: "
            f"unbroken restart {run.name} (sets them aside), or take a new name"
        ]
    )


def _refuse_done(run: RunSpec, found: ImportedFiles) -> None:
    """Raise CheckpointError if nothing is left to do: by the goal of the run, else by the program's own word."""
    progress = found.handover.progress
    is_there = run.goal is not None and progress.done >= run.goal and progress.unit != COUNTED
    says_so = (found.handover.is_finished or progress.is_finished) and run.is_content_with(progress)
    if is_there or says_so:
        goal = run.goal if run.goal is not None else progress.goal
        wanted = "" if goal is None else f", and the goal is {goal:.10g}"
        at = f"{progress.done:.10g} {progress.unit}"
        raise CheckpointError(f"{run.name}: it is at {at}{wanted}: nothing is left to do; raise the goal")


# --- export ---


def export_run(job: Job, engine: Engine, target: Path, which: str) -> Checkpoint:
    """Fill `target`, which must not exist, from the newest good checkpoint, or the one named `which`; return that.

    NoCheckpointError if there is none, IdentityError if the run's settings are not those that it was made with.  If
    the process dies inside, `target` is not there.
    """
    if os.path.lexists(target):
        raise ConfigError([f"{job.run.name}: --to: {target} exists; nothing was written; name another"])
    checkpoint = _chosen(job, which)
    identity = identity_of(job.run, job.keys, job.base)
    if checkpoint.passport.identity not in usable_identities(identity, job.places.accepted, [checkpoint]):
        raise IdentityError(refusal(job.run.name, checkpoint, identity), run=job.run.name)
    draft = target.with_name(fs.unique_name(target.name))
    with fs.os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        try:
            lines = engine.export(job.run, checkpoint, draft)
            (draft / README).write_text(_readme(checkpoint, lines))
            flush_tree(draft)
            os.rename(draft, target)
            fs.flush(target.parent)
        finally:
            if draft.exists():
                fs.remove_tree(draft)
    return checkpoint


def _chosen(job: Job, which: str) -> Checkpoint:
    """Return the checkpoint, every byte of it read; a bad one stays where it is."""
    refuse_newer(job.places)
    found = list(reversed(Store(job.places.checkpoints).readable()))
    if which:
        found = [each for each in found if which in (each.name, str(each.passport.sequence))]
    for checkpoint in found:
        try:
            return verify(checkpoint.folder, job.run.name)
        except CheckpointError as error:
            if which:
                raise
            logger.warning(f"bad checkpoint {checkpoint.name}: {error}; taking the one before")
    names = ", ".join(Store(job.places.checkpoints).names())
    none = "no good checkpoint to export" if names else "no checkpoint yet; to start it, type: snakemake"
    what = f"no checkpoint {which!r}; allowed: {names or 'none'}" if which else none
    raise NoCheckpointError(f"{job.run.name}: has {what}")


def _readme(checkpoint: Checkpoint, lines: list[str]) -> str:
    passport = checkpoint.passport
    head = f"Run {passport.run}, checkpoint {checkpoint.name} ({describe_done(checkpoint)}), by unbroken export."
    source = [] if passport.imported is None else ["", f"The run was imported from {passport.imported.source}."]
    return "\n".join([head, "", *lines, *source, ""])
