"""Look at what keeps a run from being touched: its folder is missing, foreign, read-only, or of a newer unbroken.

That a run has begun is noted outside of its folder: where the folder's disk is missing, no job must begin again.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from unbroken.errors import StorageError, UnbrokenError
from unbroken.store import checkpoint, claim, driver_start, record
from unbroken.store.checkpoints import Store
from unbroken.store.formats import Format
from unbroken.store.history import History
from unbroken.store.layout import CHAINS, RunFolder
from unbroken.store.lease import claim_paths
from unbroken.store.own_folder import confirm_all_own
from unbroken.system import disk

STATE = Format()


def state_path(key: str) -> Path:
    """Return the file with what is noted of a run or of a chain outside of the run's folder."""
    return CHAINS / key / "state.json"


def note_begun(folder: RunFolder) -> None:
    """Note that this start of snakemake knows the run's folder; a disk that takes no note does no harm."""
    if driver_start.current():
        with suppress(OSError, StorageError):
            STATE.update(_path(folder), {"begun": driver_start.current()})


def note_if_there(folder: RunFolder) -> None:
    """Do what `note_begun` does if the run has a folder already."""
    if _is_there(folder):
        note_begun(folder)


def is_missing(folder: RunFolder) -> bool:
    """Return True if this start of snakemake has seen the run's folder, which is not here; a new start begins again."""
    if not driver_start.current() or _is_there(folder):
        return False
    return bool(STATE.found(_path(folder)).get("begun") == driver_start.current())


def refuse_missing(folder: RunFolder) -> None:
    """Raise StorageError if it is missing, with what to do."""
    if is_missing(folder):
        raise StorageError(
            f"{folder.root}: not there on {os.uname().nodename}, although the run has begun (is its disk mounted?); a "
            "start of snakemake without it begins anew",
            todo="have it mounted",
        )


def refuse_newer(folder: RunFolder) -> None:
    """Raise FormatError, with what to type, if another unbroken wrote a file of the run; what is bad is left to others.

    Of what may be thousands, the newest speaks for the others.
    """
    store = Store(folder.checkpoints)
    folders = [store.root / name for name in store.names()]
    folders += [store.archive / name for name in store.archived()[-1:]]
    for path in folders:
        checkpoint.FORMAT.found(path / checkpoint.FILE_NAME)
    records = [path for path in folder.segments.glob("*.json") if path.stem.isdecimal()]
    if records:
        record.FORMAT.found(max(records, key=lambda path: int(path.stem)))
    History(folder.history).attempts(1)
    for path in claim_paths(folder.lease):
        claim.FORMAT.found(path)


def obstacle(folder: RunFolder) -> str:
    """Return what keeps a run from writing, as far as that can be seen without writing; empty if nothing does."""
    if not _is_there(folder) and STATE.found(_path(folder)).get("begun"):
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


def _is_there(folder: RunFolder) -> bool:
    return folder.history.exists() or folder.checkpoints.exists()


def _path(folder: RunFolder) -> Path:
    return folder.base / state_path(folder.name)
