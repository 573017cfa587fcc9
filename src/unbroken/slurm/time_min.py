"""Holes in the queue: a job that takes less than its time limit where backfill has no more (`sbatch --time-min`).

Measured on 22.05.8 and 26.05.3, with a hole of 4 minutes and `--time=10 --time-min=1`: the newer one gives 4 minutes,
the older one exactly the least, also where more is free; it was mended in 25.05.3.  So on an older one a job that
waits is offered shorter holes for a while only, the longest first, and then none again; its user may change that, and
it keeps its age.  `sbatch --test-only` finds no hole: every length gets the same time, after all other jobs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from unbroken.slurm.commands import ask

# From this release on backfill gives all that a hole has.
WHOLE_HOLE = (25, 5, 3)
ONLY_WITH_DRIVER = (
    "its jobs wait for at_most minutes: before Slurm 25.05.3 shorter holes are used with a driver alone; "
    "type: snakemake --profile slurm"
)
# So many lengths below the most are tried one after the other, the last of them the least; then the most again.
STEPS = 3
NOTHING_LESS = 0
# Each is offered for a twentieth of the least length: to wait for a longer hole costs little beside what it brings.
OFFERED_SHARE = 1 / 20
# Backfill looks every 30 s by default (bf_interval); a short least length is for clusters that look more often.
LEAST_SECONDS = 5.0
# So many times longer it is offered nothing less: a hole for all of it would be cut to what is offered when it opens.
WHOLE_TIMES = 5
_VERSION = re.compile(r"^SLURM_VERSION\s*=\s*(\d+)\.(\d+)\.(\d+)", re.MULTILINE)


def gives_whole_holes() -> bool:
    """True if the controller's release gives a job all of the hole that it starts in; False if it does not answer."""
    found = _VERSION.search(ask("scontrol", "show", "config") or "")
    return found is not None and tuple(map(int, found.groups())) >= WHOLE_HOLE


def words(least_minutes: float) -> list[str]:
    """For sbatch, where holes are given whole."""
    return [f"--time-min={math.ceil(least_minutes)}"]


def offers(least_minutes: float, most_minutes: float) -> list[int]:
    """The least lengths to ask for, again and again in this order, in whole minutes: each shorter by the same factor.

    `NOTHING_LESS` is the last; none where no whole minute lies between.
    """
    least, most = math.ceil(least_minutes), math.ceil(most_minutes)
    lengths = (math.ceil(most * (least / most) ** (step / STEPS) - 1e-9) for step in range(1, STEPS + 1))
    found = [minutes for minutes in dict.fromkeys(lengths) if minutes < most]
    return [*found, NOTHING_LESS] if found else []


def offered_seconds(least_minutes: float, offer: int) -> float:
    """For how long one of them is offered before the next."""
    return max(LEAST_SECONDS, least_minutes * 60 * OFFERED_SHARE) * (WHOLE_TIMES if offer == NOTHING_LESS else 1)


def accept(jobs: Sequence[str], minutes: int) -> bool:
    """Lets these jobs that wait start in holes of so many minutes; on one that has started it has no effect.

    False if Slurm does not answer, or refuses it for one of them.
    """
    return ask("scontrol", "update", f"JobId={','.join(jobs)}", f"TimeMin={minutes}") is not None
