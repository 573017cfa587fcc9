"""Export a run: a plain folder from which its program resumes without unbroken; the run itself is only read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from unbroken.engines.base import Engine
from unbroken.errors import CheckpointError, ConfigError, IdentityError, NoCheckpointError
from unbroken.job.attempt import Job
from unbroken.runs.before_work import refuse_newer
from unbroken.runs.checkpoint import Checkpoint, describe_done
from unbroken.runs.identity import identity_of, usable_identities
from unbroken.runs.select import refusal, verify
from unbroken.runs.store import Store
from unbroken.system import fs
from unbroken.system.flush import flush_tree

README = "EXPORT.txt"


def export_run(job: Job, engine: Engine, target: Path, which: str, tell: Callable[[str], None]) -> Checkpoint:
    """Fill `target`, which must not exist, from the newest good checkpoint, or the one named `which`; return that.

    NoCheckpointError if there is none, IdentityError if the run's settings are not those that it was made with.  If
    the process dies inside, `target` is not there.
    """
    if os.path.lexists(target):
        raise ConfigError([f"{job.run.name}: --to: {target} exists; nothing was written; name another"])
    checkpoint = _chosen(job, which, tell)
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
            fs.flush_folder(target.parent)
        finally:
            if draft.exists():
                fs.remove_tree(draft)
    return checkpoint


def _chosen(job: Job, which: str, tell: Callable[[str], None]) -> Checkpoint:
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
            tell(f"bad checkpoint {checkpoint.name}: {error}; taking the one before")
    names = ", ".join(Store(job.places.checkpoints).names())
    none = "no good checkpoint to export" if names else "no checkpoint yet; to start it, type: snakemake"
    what = f"no checkpoint {which!r}; allowed: {names or 'none'}" if which else none
    raise NoCheckpointError(f"{job.run.name}: has {what}")


def _readme(checkpoint: Checkpoint, lines: list[str]) -> str:
    passport = checkpoint.passport
    head = f"Run {passport.run}, checkpoint {checkpoint.name} ({describe_done(checkpoint)}), by unbroken export."
    source = [] if passport.imported is None else ["", f"The run was imported from {passport.imported.source}."]
    return "\n".join([head, "", *lines, *source, ""])
