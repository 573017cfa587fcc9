"""Which start of snakemake an attempt belongs to; each one counts attempts anew, for something may be mended."""

from __future__ import annotations

import os
import uuid
from collections.abc import MutableMapping

from unbroken.system.clock import folder_stamp, utc_now

# Inherited by every job on this machine, and written into the command of every job on Slurm.
START = "UNBROKEN_START"
# For a snakemake that a job without a driver starts: nobody has mended anything.
SAME_START = "UNBROKEN_SAME_START"


def begin(environment: MutableMapping[str, str] = os.environ) -> str:
    """Names this start, for the driver and all jobs that it starts."""
    start = environment.pop(SAME_START, "") or f"{folder_stamp(utc_now())}-{uuid.uuid4().hex[:8]}"
    environment[START] = start
    return start


def current() -> str:
    """The start that this process belongs to; empty if nobody has named one."""
    return os.environ.get(START, "")
