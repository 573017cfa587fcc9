"""`sbatch --time-min`: a job that backfill may start with less than its time limit, where the queue has no more.

Measured on 22.05.8 and 26.05.3, with 4 minutes free and `--time=10 --time-min=1`: the newer release gives the job the
4 minutes, the older one exactly the least, also where more is free.  It was fixed in 25.05.3.
"""

from __future__ import annotations

import math
import re

from unbroken.slurm.commands import ask

# From this release on backfill gives a job all the time that is free.
ALL_TIME = (25, 5, 3)
_VERSION = re.compile(r"^SLURM_VERSION\s*=\s*(\d+)\.(\d+)\.(\d+)", re.MULTILINE)


def gives_all_time() -> bool:
    """Return True if the controller's release gives a job all the time that is free; False if it does not answer."""
    found = _VERSION.search(ask("scontrol", "show", "config") or "")
    return found is not None and tuple(map(int, found.groups())) >= ALL_TIME


def words(least_minutes: float | None) -> list[str]:
    """Return the words for sbatch, on a release that gives a job all the time."""
    return [f"--time-min={math.ceil(least_minutes)}"] if least_minutes else []
