"""Look at what keeps a run from being touched: its folder is missing, foreign, read-only, or of a newer unbroken.

That a run has begun is noted outside of its folder: where the folder's disk is missing, no job must begin again.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from unbroken.errors import StorageError, UnbrokenError
from unbroken.runs import checkpoint, claim, driver_start, record
from unbroken.runs.formats import Format
from unbroken.runs.history import History
from unbroken.runs.layout import CHAINS, RunFolder
from unbroken.runs.lease import claim_paths
from unbroken.runs.own_folder import confirm_all_own
from unbroken.runs.store import Store
from unbroken.system import disk

STATE = Format()


def state_path(key: str) -> Path:
    """Return the file with what is noted of a run or of a chain outside of the run's folder."""
    return CHAINS / key / "state.json"


def note_begun(places: RunFolder) -> None:
    """Note that this start of snakemake knows the run's folder; a disk that takes no note does no harm."""
    if driver_start.current():
        with suppress(OSError, StorageError):
            STATE.update(_path(places), {"begun": driver_start.current()})


def note_if_there(places: RunFolder) -> None:
    """Do what `note_begun` does if the run has a folder already."""
    if _is_there(places):
        note_begun(places)


def is_missing(places: RunFolder) -> bool:
    """Return True if this start of snakemake has seen the run's folder, which is not here; a new start begins again."""
    if not driver_start.current() or _is_there(places):
        return False
    return bool(STATE.found(_path(places)).get("begun") == driver_start.current())


def refuse_missing(places: RunFolder) -> None:
    """Raise StorageError if it is missing, with what to do."""
    if is_missing(places):
        raise StorageError(
            f"{places.root}: not there on {os.uname().nodename}, although the run has begun (is its disk mounted?); a "
            "start of snakemake without it begins anew",
            todo="have it mounted",
        )


def refuse_newer(places: RunFolder) -> None:
    """Raise FormatError, with what to type, if another unbroken wrote a file of the run; what is bad is left to others.

    Of what may be thousands, the newest speaks for the others.
    """
    store = Store(places.checkpoints)
    folders = [store.root / name for name in store.names()]
    folders += [store.archive / name for name in store.archived()[-1:]]
    for folder in folders:
        checkpoint.FORMAT.found(folder / checkpoint.FILE_NAME)
    records = [path for path in places.segments.glob("*.json") if path.stem.isdecimal()]
    if records:
        record.FORMAT.found(max(records, key=lambda path: int(path.stem)))
    History(places.history).attempts(1)
    for path in claim_paths(places.lease):
        claim.FORMAT.found(path)


def obstacle(places: RunFolder) -> str:
    """Return what keeps a run from writing, as far as that can be seen without writing; empty if nothing does."""
    if not _is_there(places) and STATE.found(_path(places)).get("begun"):
        return f"{places.root} is missing on {os.uname().nodename}, or empty"
    try:
        confirm_all_own(places.own)
        for path in (places.root, places.lease, places.history):
            if path.exists() and not os.access(path, os.W_OK):
                return f"{path} cannot be written"
        return disk.full_words(places.root)
    except UnbrokenError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or places.root}: {error.strerror or errno.errorcode.get(error.errno or 0, error)}"


def _is_there(places: RunFolder) -> bool:
    return places.history.exists() or places.checkpoints.exists()


def _path(places: RunFolder) -> Path:
    return places.base / state_path(places.name)
