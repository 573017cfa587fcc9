"""Import what ran elsewhere as a run's first checkpoint, under the run's lease like all that writes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from unbroken.config.found import absent
from unbroken.engines.base import Engine
from unbroken.engines.imports import COUNTED, OUTPUT, ImportedFiles, ImportSource
from unbroken.errors import CheckpointError, ConfigError, LeaseError, UnbrokenError
from unbroken.job.attempt import Job
from unbroken.job.publisher import passport_of
from unbroken.job.recovery import make_folders
from unbroken.runs import before_work, lease
from unbroken.runs.before_work import refuse_newer
from unbroken.runs.checkpoint import IMPORT_SEGMENT as SEGMENT
from unbroken.runs.checkpoint import Checkpoint, Imported
from unbroken.runs.identity import Identity, identity_of
from unbroken.runs.layout import RunFolder
from unbroken.runs.lease import Lease
from unbroken.runs.own_folder import confirm_all_own
from unbroken.runs.progress import Handover
from unbroken.runs.run import RunSpec
from unbroken.runs.select import verify
from unbroken.runs.store import Store
from unbroken.system import fs, log
from unbroken.system.clock import utc_now
from unbroken.system.flush import flush_tree

# Begins the hidden name of the folder in which an import is made.
DRAFT = "import"


def import_run(job: Job, engine: Engine, source: ImportSource, tell: Callable[[str], None]) -> Checkpoint:
    """Publish the run's first checkpoint, made by the engine of `source`, and return it, every byte of it read again.

    ConfigError if the run has checkpoints, or a job holds it; CheckpointError if the files do not fit.  Nothing of the
    source is changed.  If the process dies inside, there is no checkpoint or a complete one, and a segment that finds
    none is refused until the import is repeated.
    """
    run, places = job.run, job.places
    before_work.refuse_missing(places)
    refuse_newer(places)
    _refuse_source(run, places, source.path)
    _refuse_begun(run, places)
    identity = identity_of(run, job.keys, job.base)
    confirm_all_own(places.own)
    try:
        with log.lines_to(tell):
            held = lease.take(places.lease, SEGMENT, 0.0)
    except LeaseError as error:
        raise ConfigError([f"{run.name}: {error}"]) from error
    with held, fs.os_errors(places.root):
        held.confirm()
        _refuse_begun(run, places)
        fs.write_atomic(places.importing, f"{source.path.resolve()}\n")
        checkpoint = _publish(job, engine, source, held, identity)
        held.confirm()
        places.importing.unlink(missing_ok=True)
        held.forget_earlier()  # those of imports that were killed
        before_work.note_begun(places)
    return checkpoint


def _publish(job: Job, engine: Engine, source: ImportSource, held: Lease, identity: Identity) -> Checkpoint:
    run, places = job.run, job.places
    store = Store(places.checkpoints)
    make_folders(places)
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
            run, engine, identity, first, segment=SEGMENT, sequence=1, token=held.claim.token, parent=None,
            parent_digest=None, slurm_job=None, attempt_started_utc=utc_now(), work_seconds=0.0, imported=imported,
        )  # fmt: skip
        published = store.publish(draft, manifest, held.confirm)
    except UnbrokenError:  # what is refused leaves the run as it was: one that never began
        if not store.names():
            places.importing.unlink(missing_ok=True)
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
    fs.flush_folder(places.root)


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
