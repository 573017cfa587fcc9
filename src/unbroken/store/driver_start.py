"""Pass to the jobs of a driver, in the environment, the start of snakemake they belong to and which process prints."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from datetime import UTC, datetime

from unbroken.slurm.this_job import own_job_id
from unbroken.system.clock import folder_stamp, utc_now

# Inherited by every job on this machine, and written into the command of every job on Slurm.
START = "UNBROKEN_START"
# `off`: Snakemake's own output, with the segments' lines in it.  Set otherwise by the console, for its segments.
CONSOLE = "UNBROKEN_CONSOLE"


def begin(environment: MutableMapping[str, str] = os.environ) -> str:
    """Name this start, for the driver and all jobs that it starts."""
    start = f"{folder_stamp(utc_now())}-{os.urandom(4).hex()}"
    environment[START] = start
    return start


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
