"""Restore a run from its replica.

The run is built in `results/.restoring-<run>`, under a lease of its own, and comes to its place by one rename: a reader
sees no run or a complete one.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from unbroken.copies.outputs import OutputPlace, OutputsOf, shortened
from unbroken.copies.replica import NOTE, Note, Replica, read_note, write_note
from unbroken.copies.transfer import is_draft
from unbroken.errors import CheckpointError, ConfigError, NoCheckpointError, StorageError
from unbroken.store import lease
from unbroken.store.checkpoint import Checkpoint, age_by_name, describe_done
from unbroken.store.checkpoints import Store
from unbroken.store.claim import Claim, claim_path
from unbroken.store.history import Attempt, EndKind, History
from unbroken.store.layout import RunFolder
from unbroken.store.own_folder import confirm_own
from unbroken.store.record import read_record
from unbroken.store.select import refuse_newer, verify
from unbroken.system import copying, fs
from unbroken.system.clock import utc_now
from unbroken.system.fs import flush_tree

logger = logging.getLogger(__name__)
# More claims may have followed the last one that the replica knows of: no job of the lost run meets its own number.
TOKENS_APART = 1000


def restore(run: str, source: Path, base: Path, outputs_of: OutputsOf) -> Checkpoint:
    """Build `results/<run>` from its replica and return the checkpoint from which it resumes.

    `source` is the folder of `copies:`, or the run's folder in there; `outputs_of` returns what lies outside of a
    checkpoint and belongs to it.  ConfigError if the run exists or has no copies there, CheckpointError if none of them
    is good, LeaseError if another process restores it, StorageError or OSError for a disk.  If the process dies inside,
    the run is absent, and the next call begins again.
    """
    folder, draft = RunFolder(run, base), RunFolder(f".restoring-{run}", base)
    replica = _found(run, source)
    _refuse_existing(folder, replica)
    refuse_newer(replica.folder)
    with fs.storage_errors(draft.root, fs.tree_bytes(replica.root)):
        draft.root.mkdir(parents=True, exist_ok=True)
        confirm_own(draft.root)
        with lease.take(_seeded(draft, replica), 0, 0.0) as held:
            _copy_all(replica, draft)
            newest = _keep_good(run, replica, draft, outputs_of)
            _keep_history(replica, draft, newest)
            flush_tree(draft.root)
            _take_over(replica, folder, draft)
            _refuse_existing(folder, replica)
            held.forget_earlier()
            os.rename(draft.root, folder.root)
            held.folder = folder.lease
            fs.flush(folder.root.parent)
    done = describe_done(newest)
    logger.info("%s: restored in %s from %s: %s, checkpoint %s", run, folder.root, replica.root, done, newest.name)
    return newest


def _copy_all(replica: Replica, draft: RunFolder) -> None:
    """Copy all files of a replica but unfinished copies; what an earlier call left is removed."""
    for path in draft.root.iterdir():
        if path.is_dir() and path.name != "lease":
            fs.remove_tree(path)
        elif path.is_file():
            path.unlink()
    for base, folders, names in os.walk(replica.root):
        folders[:] = [name for name in folders if not is_draft(name)]
        target = draft.root / Path(base).relative_to(replica.root)
        target.mkdir(exist_ok=True)
        for name in names:
            if not fs.is_unique_name(name):
                copying.copy_file(Path(base, name), target / name)


def _keep_good(run: str, replica: Replica, draft: RunFolder, outputs_of: OutputsOf) -> Checkpoint:
    """Remove from the draft what is no good; return the checkpoint to resume from, NoCheckpointError if none is good.

    That is the newest that lacks no outputs, or else the newest.
    """
    store, outputs, good = Store(draft.checkpoints), OutputPlace(draft.root), list[Checkpoint]()
    for name in store.names():
        try:
            good.append(verify(store.root / name, run))
        except CheckpointError as error:
            logger.warning("%s: a copy is bad and left out: %s", run, error)
            fs.remove_tree(store.root / name)
    if not good:
        raise NoCheckpointError(f"{replica.root}: no good copy of a checkpoint; {run} was not restored")
    lacking = {each.name: outputs.lacking(outputs_of(each)) for each in good}
    newest = max(good, key=lambda each: (not lacking[each.name], each.age))
    for each in good:
        is_left_out = each.age > newest.age
        what = "is left out" if is_left_out else "a run that resumes from it may end with doubts"
        if lacking[each.name] and each.age >= newest.age:
            names = shortened(lacking[each.name])
            logger.warning("%s: the copy of %s lacks outputs, and %s: %s", run, each.name, what, names)
        if is_left_out:
            fs.remove_tree(each.folder)
    for output in (each for each in outputs_of(newest) if outputs.find(each) is None):
        with suppress(OSError):
            (draft.root / output.place).unlink()  # that of another checkpoint
    store.mend_links(newest)
    return newest


def _keep_history(replica: Replica, draft: RunFolder, newest: Checkpoint) -> None:
    """Write again what the history says of work that was lost, and remove its records."""
    draft.history.unlink(missing_ok=True)
    for attempt in History(replica.folder.history).attempts():
        History(draft.history).append(_as_it_counts_now(attempt, newest))
    for path in draft.segments.glob("[0-9]*.json"):
        record = read_record(path)
        if record is None or _is_lost(record.checkpoint, newest):
            path.unlink()


def _found(run: str, source: Path) -> Replica:
    for root in (source, source / run):
        if (note := read_note(root)) is not None:
            if note.run != run:
                raise ConfigError([f"--from: {root} holds copies of the run {note.run!r}, not of {run!r}"])
            return Replica(root)
    allowed = f"the folder of `copies:`, with {run}/{NOTE} in it"
    raise ConfigError([f"--from: found {source}, which holds no copies of {run}; allowed: {allowed}"])


def _refuse_existing(folder: RunFolder, replica: Replica) -> None:
    results = folder.root.parent
    if results.is_symlink() and not results.exists():
        raise ConfigError([f"{results}: a link to {os.readlink(results)}, which is not there; make that folder first"])
    if os.path.lexists(folder.root):
        again = f"unbroken restore {folder.name} --from {replica.root}"
        advice = f"type: snakemake (it continues), or: unbroken restart {folder.name} (a backup is kept), then: {again}"
        raise ConfigError([f"{folder.root}: the run is there, nothing was restored; {advice}"])


def _seeded(draft: RunFolder, replica: Replica) -> Path:
    """Return the folder of the lease, whose next claim is above all that the lost run may have used."""
    draft.lease.mkdir(exist_ok=True)
    confirm_own(draft.lease)
    if not any(draft.lease.glob("*.json")):
        tokens = [attempt.token for attempt in History(replica.folder.history).attempts()]
        tokens += [age_by_name(name)[1] for name in replica.store.names()]
        token = max(tokens, default=0) + TOKENS_APART
        claim = Claim(token, 0, "", 0, "", "", "", "", "", utc_now(), released_utc=utc_now())
        fs.create_exclusive(claim_path(draft.lease, token), claim.text)
    return draft.lease


def _take_over(replica: Replica, folder: RunFolder, draft: RunFolder) -> None:
    """Give the run and its replica a new number: the lost run, should it come back, copies nothing there any more."""
    note = Note(folder.name, uuid4().hex, str(folder.root.parent.resolve() / folder.name))
    try:
        write_note(replica.root, note)
    except StorageError as error:
        logger.warning("%s: %s; should the lost run come back, it copies there too", folder.name, error)
    else:
        write_note(draft.root, note)


def _as_it_counts_now(attempt: Attempt, newest: Checkpoint) -> Attempt:
    """Return an attempt whose work has to be done again, where the replica does not have it."""
    left = attempt.to_checkpoint or attempt.from_checkpoint
    if left is None or not _is_lost(left, newest):
        return attempt
    message = f"its checkpoints were lost; the run was restored from the copy of {newest.name}"
    done = min(attempt.progress_to, newest.passport.progress.done)
    return replace(attempt, kind=EndKind.DIED, to_checkpoint=None, progress_to=done, message=message)


def _is_lost(name: str, newest: Checkpoint) -> bool:
    return age_by_name(name) > newest.age
