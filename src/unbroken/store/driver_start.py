"""The start of snakemake that a job belongs to, which runs' folders it has seen, and which process prints.

Its name is passed on in the environment.  That a run has begun is noted outside of the run's folder: where the folder's
disk is missing, no job must begin again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from unbroken.errors import StorageError
from unbroken.slurm.this_job import own_job_id
from unbroken.store.layout import CHAINS, Format, RunFolder
from unbroken.system.clock import folder_stamp, utc_now

# Inherited by every job on this machine, and written into the command of every job on Slurm.
START = "UNBROKEN_START"
# `off`: Snakemake's own output, with the segments' lines in it.  Set otherwise by the console, for its segments.
CONSOLE = "UNBROKEN_CONSOLE"
STATE = Format()  # of what is noted outside of a run's folder


def begin() -> None:
    """Name this start, for the driver and all jobs that it starts."""
    os.environ[START] = f"{folder_stamp(utc_now())}-{os.urandom(4).hex()}"


def current() -> str:
    """Return the start that this process belongs to; empty if none was named."""
    return os.environ.get(START, "")


def began_unix(start: str) -> float:
    """Return when a start of that name began, in Unix seconds; 0 for a name that does not say it."""
    try:
        named = datetime.strptime(start.partition("-")[0], "%Y%m%dT%H%M%SZ")
    except ValueError:
        return 0.0
    return named.replace(tzinfo=UTC).timestamp()


def is_console_unwanted() -> bool:
    """Return True if the user wants Snakemake's own output."""
    return os.environ.get(CONSOLE) == "off"


def take_screen() -> None:
    """Let the segments that this process starts on this machine print nothing on its screen."""
    os.environ[CONSOLE] = _here()


def is_screen_taken() -> bool:
    """Return True below a driver with a console; a job that Slurm started has no screen but its own log."""
    return os.environ.get(CONSOLE) == _here()


def _here() -> str:
    return f"on {own_job_id()}".rstrip()


# --- what is noted of a run outside of its folder ---


def state_path(key: str) -> Path:
    """Return the file with what is noted of a run or of a chain outside of the run's folder."""
    return CHAINS / key / "state.json"


def note_begun(folder: RunFolder) -> None:
    """Note that this start of snakemake knows the run's folder; a disk that takes no note does no harm."""
    if current():
        with suppress(OSError, StorageError):
            STATE.update(_path(folder), {"begun": current()})


def note_if_there(folder: RunFolder) -> None:
    """Do what `note_begun` does if the run has a folder already."""
    if _is_there(folder):
        note_begun(folder)


def missed_by(folder: RunFolder) -> str:
    """Return the last start of snakemake that has seen the run's folder, if it is not here; else ''."""
    return "" if _is_there(folder) else STATE.found(_path(folder)).get("begun", "")


def is_missing(folder: RunFolder) -> bool:
    """Return True if this start of snakemake has seen the run's folder, which is not here; a new start begins again."""
    return bool(current()) and missed_by(folder) == current()


def refuse_missing(folder: RunFolder) -> None:
    """Raise StorageError if it is missing, with what to do."""
    if is_missing(folder):
        raise StorageError(
            f"{folder.root}: not there on {os.uname().nodename}, although the run has begun (is its disk mounted?); a "
            "start of snakemake without it begins anew",
            todo="have it mounted",
        )


def _is_there(folder: RunFolder) -> bool:
    return folder.history.exists() or folder.checkpoints.exists()


def _path(folder: RunFolder) -> Path:
    return folder.base / state_path(folder.name)
