"""Whether segments print on the driver's screen themselves, or leave it to the driver's console."""

from __future__ import annotations

import os
from threading import RLock

from unbroken.slurm.this_job import own_job_id

# `off`: Snakemake's own output, with the segments' lines in it.  Set otherwise by the console, for its segments.
VARIABLE = "UNBROKEN_CONSOLE"

# Held while a line of Snakemake's output or of ours is written.  Snakemake writes a line and its end in two pieces, for
# a plugin in a thread of its own, and a line of ours between them would begin in the middle of a line.
lock = RLock()


def is_unwanted() -> bool:
    """True if the user wants Snakemake's own output."""
    return os.environ.get(VARIABLE) == "off"


def take_over() -> None:
    """From now on the segments that this process starts on this machine print nothing on its screen."""
    os.environ[VARIABLE] = _here()


def is_taken_over() -> bool:
    """True below a driver with a console; not in a job that Slurm started, which has no screen but its own log."""
    return os.environ.get(VARIABLE) == _here()


def _here() -> str:
    return f"on {own_job_id()}".rstrip()
