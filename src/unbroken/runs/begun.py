"""That a run has begun, noted outside of its folder: where the folder's disk is missing, no job must begin anew."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from unbroken.errors import StorageError
from unbroken.runs import driver_start
from unbroken.runs.layout import NOTES, RunFolder
from unbroken.system import fs


def note(places: RunFolder) -> None:
    """Notes that this start of snakemake knows the run's folder; a disk that takes no note does no harm."""
    if not driver_start.current():
        return
    path = _path(places)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        fs.write_atomic(path, f"{driver_start.current()}\n")


def note_if_there(places: RunFolder) -> None:
    """The same, if the run has been at work before."""
    if _is_there(places):
        note(places)


def is_missing(places: RunFolder) -> bool:
    """True if this start of snakemake has seen the run's folder, and here it is not.

    Who removes it to begin anew starts snakemake again.
    """
    if not driver_start.current() or _is_there(places):
        return False
    try:
        return _path(places).read_text().strip() == driver_start.current()
    except OSError:
        return False


def was_seen(places: RunFolder) -> bool:
    """True if some start of snakemake has seen the run's folder, and here it is not."""
    return not _is_there(places) and _path(places).exists()


def refuse_missing(places: RunFolder) -> None:
    """StorageError if it is missing, with what to do."""
    if is_missing(places):
        raise StorageError(
            f"{places.root}: not there on {os.uname().nodename}, although the run has begun (is its disk mounted?); a "
            "start of snakemake without it begins anew",
            todo="have it mounted",
        )


def _is_there(places: RunFolder) -> bool:
    return places.history.exists() or places.checkpoints.exists()


def _path(places: RunFolder) -> Path:
    return places.base / NOTES / f"{places.name}.begun"
