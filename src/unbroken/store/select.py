"""Look at a run before it is touched: what keeps it from being written, and the checkpoint that it resumes from.

That is the newest one that proves to be good and its own.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from unbroken.errors import CheckpointError, IdentityError, NoCheckpointError, OutageError, UnbrokenError
from unbroken.store import claim, record
from unbroken.store.checkpoint import FILE_NAME, Checkpoint, age_by_name, folder_name, read_passport, verify_files
from unbroken.store.checkpoint import FORMAT as MANIFEST
from unbroken.store.checkpoints import QUARANTINE, Store
from unbroken.store.driver_start import missed_by
from unbroken.store.history import History
from unbroken.store.layout import RunFolder
from unbroken.store.lease import claim_paths
from unbroken.store.own_folder import confirm_all_own
from unbroken.store.run import Identity
from unbroken.system import disk

logger = logging.getLogger(__name__)
# How long a file server may be silent, and how often it is asked.
PATIENCE_SECONDS = 600.0
FIRST_REST_SECONDS = 0.5
LONGEST_REST_SECONDS = 30.0


def verify(folder: Path, run: str) -> Checkpoint:
    """Return the checkpoint in `folder`, every byte checked; CheckpointError says what is wrong."""
    checkpoint = Checkpoint(folder, read_passport(folder))
    if checkpoint.passport.run != run:
        raise CheckpointError(f"{folder}: the passport belongs to the run {checkpoint.passport.run!r}")
    _verify_parent(checkpoint)
    verify_files(checkpoint)
    return checkpoint


def select(
    store: Store,
    run: str,
    is_accepted: Callable[[str], bool],
    *,
    has_worked: bool = False,
    rest: Callable[[float], None] = time.sleep,
    skip: str = "",
) -> Checkpoint | None:
    """Return the newest good checkpoint, None if the run has none yet; bad ones on the way are quarantined and logged.

    One that cannot be read now is tried for `PATIENCE_SECONDS`, with `rest` in between, which may raise to end it; then
    it stays where it is, as all others do, and one before that is good is taken.  Raises its OutageError if there is
    none, IdentityError if the newest good one is of another computation and FormatError if another version made it
    (nothing is moved then), NoCheckpointError if there were checkpoints (the store or, by `has_worked`, the history
    says so) and none of them is good.  The one named `skip` is passed over.
    """
    names = [name for name in _newest_first(store) if name != skip]
    outage: OutageError | None = None
    for name in names:
        try:
            folder = store.root / name
            checkpoint = verify(folder, run) if outage else _patiently(folder, run, rest)
        except CheckpointError as error:
            _leave_out(store, name, error, is_in_doubt=outage is not None)
        except OutageError as error:
            logger.warning("%s: cannot be read (%s); it stays where it is; taking the one before", name, error)
            outage = outage or error
        else:
            if not is_accepted(checkpoint.passport.identity):
                made_by = f"another computation (identity {checkpoint.passport.identity[:12]})"
                raise IdentityError(f"{checkpoint.folder}: made by {made_by}")
            return checkpoint
    if outage:
        raise _lasting(outage, run)
    if back := _back_again(store, run, is_accepted):
        return back
    if names or has_worked or (store.root / QUARANTINE).is_dir():
        raise NoCheckpointError(
            f"no good checkpoint is left; the bad ones and their reasons are in {store.root / QUARANTINE}",
            todo=f"put a good copy into {store.root}, or begin anew with: unbroken restart {run}",
            run=run,
        )
    return None


def _leave_out(store: Store, name: str, error: CheckpointError, *, is_in_doubt: bool) -> None:
    """Quarantine a bad checkpoint; one that a file server in doubt shows so stays where it is."""
    if is_in_doubt:
        logger.warning("%s: %s; it stays where it is", name, error)
        return
    target = store.quarantine(name, str(error))
    logger.warning("bad checkpoint %s: %s; moved to %s; taking the one before", name, error, target)


def _lasting(outage: OutageError, run: str) -> OutageError:
    error = OutageError(f"{outage.text}; no other checkpoint can be read", run=run, todo="wait until it answers")
    error.since = outage.since
    return error


def _back_again(store: Store, run: str, is_accepted: Callable[[str], bool]) -> Checkpoint | None:
    """Put back the newest quarantined one that is good now: a file server in trouble may have shown other bytes."""
    for folder in store.set_aside_as_bad():
        try:
            checkpoint = verify(folder, run)
        except (CheckpointError, OutageError):
            continue
        name = folder_name(checkpoint.passport)
        if is_accepted(checkpoint.passport.identity) and not (store.root / name).exists():
            store.put_back(folder, name)
            logger.warning("%s: was quarantined as bad, and is valid now; it is back in %s", name, store.root)
            return Checkpoint(store.root / name, checkpoint.passport)
    return None


def _patiently(folder: Path, run: str, rest: Callable[[float], None]) -> Checkpoint:
    """Return the checkpoint, checked; an outage has ten minutes to pass."""
    since, pause, has_told = time.monotonic(), FIRST_REST_SECONDS, False
    while True:
        try:
            return verify(folder, run)
        except OutageError as error:
            error.since = since
            left = since + PATIENCE_SECONDS - time.monotonic()
            if left <= 0:
                raise
            if not has_told:
                logger.warning("%s; trying again for %.3g minutes", error, left / 60)
            has_told = True
            rest(min(pause, left))
            pause = min(2 * pause, LONGEST_REST_SECONDS)


def refusal(run: str, checkpoint: Checkpoint, identity: Identity) -> str:
    """Return the line for a run whose checkpoint is of another computation: what changed, and what to type."""
    found = identity.differences(checkpoint.passport.identity_parts)
    changes = "; ".join(found) or "only the order of its parts"
    return (
        f"not the computation that checkpoint {checkpoint.name} belongs to: {changes}; "
        f"allowed: the same, or a new run name; type: unbroken accept {run} (go on from the old checkpoints "
        f"with the change), or unbroken restart {run} (set the old results aside and begin anew)"
    )


def _newest_first(store: Store) -> list[str]:
    """Return all names, by passport or, where that cannot be read, by name; one without a token is older."""
    ages = {checkpoint.name: checkpoint.age for checkpoint in store.readable()}
    return sorted(store.names(), key=lambda name: (ages.get(name) or age_by_name(name), name), reverse=True)


def _verify_parent(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError if the parent is not the one that the passport names; a pruned one cannot be checked."""
    parent = checkpoint.passport.parent
    if parent is None or not (checkpoint.folder.parent / parent).is_dir():
        return
    try:
        found = read_passport(checkpoint.folder.parent / parent).digest
    except (CheckpointError, OutageError):
        return  # the parent is bad itself; this says nothing about its child
    if found != checkpoint.passport.parent_digest:
        raise CheckpointError(f"{checkpoint.folder}: its parent {parent} is not the one it was made from")


def ancestors(store: Store, checkpoint: Checkpoint) -> list[Checkpoint]:
    """Return the checkpoint and all before it that it was made from, oldest first; pruned ones from the archive.

    For engines whose checkpoints all have parts.  CheckpointError if one is gone, or not the one that its child names.
    """
    line = [checkpoint]
    while (name := line[0].passport.parent) is not None:
        folder = next((place / name for place in (store.root, store.archive) if (place / name).is_dir()), None)
        if folder is None:
            raise CheckpointError(
                f"{store.archive / name}: gone, and with it the part of the result that {line[0].name} goes on from",
                todo="put it back from a backup",
            )
        parent = Checkpoint(folder, read_passport(folder))
        if parent.passport.digest != line[0].passport.parent_digest:
            raise CheckpointError(f"{folder}: not the checkpoint that {line[0].name} was made from")
        line.insert(0, parent)
    return line


# --- what keeps a run from being touched ---


def refuse_newer(folder: RunFolder) -> None:
    """Raise FormatError, with what to type, if another unbroken wrote a file of the run; what is bad is left to others.

    Of what may be thousands, the newest speaks for the others.
    """
    store = Store(folder.checkpoints)
    folders = [store.root / name for name in store.names()]
    folders += [store.archive / name for name in store.archived()[-1:]]
    for path in folders:
        MANIFEST.found(path / FILE_NAME)
    records = [path for path in folder.segments.glob("*.json") if path.stem.isdecimal()]
    if records:
        record.FORMAT.found(max(records, key=lambda path: int(path.stem)))
    History(folder.history).attempts(1)
    for path in claim_paths(folder.lease):
        claim.FORMAT.found(path)


def obstacle(folder: RunFolder) -> str:
    """Return what keeps a run from writing, as far as that can be seen without writing; empty if nothing does."""
    if missed_by(folder):
        return f"{folder.root} is missing on {os.uname().nodename}, or empty"
    try:
        confirm_all_own(folder.own)
        for path in (folder.root, folder.lease, folder.history):
            if path.exists() and not os.access(path, os.W_OK):
                return f"{path} cannot be written"
        return disk.full_words(folder.root)
    except UnbrokenError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or folder.root}: {error.strerror or errno.errorcode.get(error.errno or 0, error)}"
