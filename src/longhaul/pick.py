"""Which checkpoint a run goes on from: the newest that proves to be whole and its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from longhaul.errors import CheckpointError, IdentityError, NoCheckpointError
from longhaul.identity import Identity
from longhaul.passport import read_passport
from longhaul.store import QUARANTINE, Checkpoint, Store, verify_files


def verify(folder: Path, run: str) -> Checkpoint:
    """The checkpoint in `folder`, every byte checked; CheckpointError says what is wrong."""
    checkpoint = Checkpoint(folder, read_passport(folder))
    if checkpoint.passport.run != run:
        raise CheckpointError(f"{folder}: the passport belongs to the run {checkpoint.passport.run!r}")
    _verify_parent(checkpoint)
    verify_files(checkpoint)
    return checkpoint


def pick(
    store: Store, run: str, is_accepted: Callable[[str], bool], tell: Callable[[str], None], has_worked: bool = False
) -> Checkpoint | None:
    """The newest good checkpoint; bad ones on the way are quarantined and told.  None if the run has none yet.

    Raises IdentityError if the newest good one is of another computation (nothing is moved then), NoCheckpointError
    if there were checkpoints (the store or, by `has_worked`, the history says so) and none of them is good.
    """
    names = _newest_first(store)
    for name in names:
        try:
            checkpoint = verify(store.root / name, run)
        except CheckpointError as error:
            target = store.quarantine(name, str(error))
            tell(f"bad checkpoint {name}: {error}; moved to {target}; taking the one before")
            continue
        if not is_accepted(checkpoint.passport.identity):
            raise IdentityError(
                f"{checkpoint.folder}: made by another computation (identity {checkpoint.passport.identity[:12]})"
            )
        return checkpoint
    if names or has_worked or (store.root / QUARANTINE).is_dir():
        raise NoCheckpointError(
            f"runs.{run}: no good checkpoint is left; the bad ones and their reasons are in {store.root / QUARANTINE}; "
            f"put a good copy into {store.root} and start again, or begin anew with: longhaul restart {run}"
        )
    return None


def refusal(run: str, checkpoint: Checkpoint, identity: Identity) -> str:
    """The line for a run whose checkpoint is of another computation: what changed, and what to type."""
    changes = "; ".join(identity.differences(checkpoint.passport.identity_parts)) or "only the order of its parts"
    return (
        f"runs.{run}: not the computation that checkpoint {checkpoint.name} belongs to: {changes}; "
        f"allowed: the same, or a new run name; type: longhaul accept {run} (go on from the old checkpoints "
        f"with the change), or longhaul restart {run} (set the old results aside and begin anew)"
    )


def _newest_first(store: Store) -> list[str]:
    readable = [checkpoint.name for checkpoint in reversed(store.readable())]
    unreadable = [name for name in reversed(store.names()) if name not in set(readable)]
    return unreadable + readable


def _verify_parent(checkpoint: Checkpoint) -> None:
    """A parent that is still there must be the one that the passport names; a pruned one cannot be asked."""
    parent = checkpoint.passport.parent
    if parent is None or not (checkpoint.folder.parent / parent).is_dir():
        return
    try:
        found = read_passport(checkpoint.folder.parent / parent).digest
    except CheckpointError:
        return  # the parent is bad itself; this says nothing about its child
    if found != checkpoint.passport.parent_digest:
        raise CheckpointError(f"{checkpoint.folder}: its parent {parent} is not the one it was made from")
