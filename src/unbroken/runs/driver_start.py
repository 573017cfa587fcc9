"""Which start of snakemake an attempt belongs to; each one counts attempts anew, for something may be mended."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, MutableMapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from unbroken.runs.layout import NOTES
from unbroken.system.clock import folder_stamp, utc_now

# Inherited by every job on this machine, and written into the command of every job on Slurm.
START = "UNBROKEN_START"


def begin(environment: MutableMapping[str, str] = os.environ) -> str:
    """Names this start, for the driver and all jobs that it starts."""
    start = f"{folder_stamp(utc_now())}-{os.urandom(4).hex()}"
    environment[START] = start
    return start


def current() -> str:
    """The start that this process belongs to; empty if nobody has named one."""
    return os.environ.get(START, "")


def began_unix(start: str) -> float:
    """Return when a start of that name began, in Unix seconds; 0 for a name that does not say it."""
    try:
        named = datetime.strptime(start.partition("-")[0], "%Y%m%dT%H%M%SZ")
    except ValueError:
        return 0.0
    return named.replace(tzinfo=UTC).timestamp()


def keep_private(base: Path, configs: Iterable[str | Path]) -> None:
    """Take from the folder of notes the rights that one of these files does not give: it holds copies of parts of them.

    For example the configuration, commands, and what they printed.
    """
    refused = 0
    for path in configs:
        with suppress(OSError):
            mode = os.stat(base / path).st_mode
            refused |= (0 if mode & stat.S_IRGRP else stat.S_IRWXG) | (0 if mode & stat.S_IROTH else stat.S_IRWXO)
    if refused:
        folder = base / NOTES
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(PermissionError):  # somebody else's
            os.chmod(folder, stat.S_IMODE(os.stat(folder).st_mode) & ~refused)
