"""Submit a job by sbatch, and find what it means when it takes none."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from unbroken.slurm.client import setting

# sbatch itself tries for a while to reach a controller that is away.  Less than others wait for the process that
# submits (unbroken.job.submissions).
PATIENCE_SECONDS = 150.0
# The end of the line after which it does so at MaxJobCount: "Slurm temporarily unable to accept job, ..." or, from
# 26.05 on, "Slurm job queue full, ..." [sbatch.c].
SLEEPS = "sleeping and retrying"
_JOB = re.compile(r"^(\d+)(?:;\S*)?\s*$", re.MULTILINE)
# From this release on backfill gives a job of `--time-min` all the time that is free.  With 4 minutes free and
# `--time=10 --time-min=1` 26.05.3 gives it the 4 minutes, 22.05.8 exactly the least [measured].
ALL_TIME = (25, 5, 3)


class Refusal(Enum):
    """Name what to do after sbatch has taken no job."""

    NO_ARRAY = "an array of that size, or any at all, is not taken (MaxArraySize)"
    FULL = "the queue takes no more jobs of this user now"
    SITE_FULL = "the queue takes no more jobs of anybody now (MaxJobCount)"
    LATER = "the same may be taken later"
    NEVER = "the job is never taken as it is"


# MaxJobCount of the whole site: sbatch itself has tried again for two minutes [measured, 22.05]; the second text from
# 26.05 on.
SITE_IS_FULL = ("Resource temporarily unavailable", "MaxJobCount limit reached")
# Slurm's own words, the same from 20.11 to 26.05 as far as a release has them [slurm_errno.c]; the first counts.
_KNOWN = {
    Refusal.NO_ARRAY: ("Invalid job array specification",),
    # One text for several limits; the number of jobs is the one that time heals.
    Refusal.FULL: (
        "job submit limit",
        "AssocMaxSubmitJobLimit",
        "QOSMaxSubmitJobPerUserLimit",
        "AssocGrpSubmitJobsLimit",
    ),
    Refusal.SITE_FULL: SITE_IS_FULL,
    Refusal.LATER: (
        "Unable to contact slurm controller",
        "Unable to contact slurmctld",
        "Socket timed out",
        "Connection refused",
        "Connection timed out",
        "Zero Bytes were transmitted or received",
        "Slurm backup controller in standby mode",
        "Controller is in standby mode",
        "Rate limit exceeded",
        "Slurm temporarily unable to accept job",
        "Transport endpoint is not connected",
    ),
    Refusal.NEVER: ("sbatch: error: ", "sbatch: fatal: "),
}


def kind_of(said: str) -> Refusal:
    """Return what to do after sbatch has said this."""
    return next((kind for kind, words in _KNOWN.items() if any(word in said for word in words)), Refusal.LATER)


@dataclass(frozen=True)
class SbatchAnswer:
    """Hold the answer of sbatch: the number of the job that it took; else its words, and if a TERM ended it."""

    job_id: str
    said: str = ""
    is_ended: bool = False


def sbatch(words: Sequence[str]) -> SbatchAnswer:
    """Submit a job; `words` hold --parsable."""
    try:
        done = _run(words)
    except OSError as error:
        return SbatchAnswer("", f"sbatch: {error}")
    found = _JOB.search(done.stdout) if done.returncode == 0 else None
    return (
        SbatchAnswer("", _said(done), done.returncode == -signal.SIGTERM) if found is None else SbatchAnswer(found[1])
    )


def gives_all_time() -> bool:
    """Return True if the controller's release gives a job all the time that is free; False if it does not answer."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", setting("SLURM_VERSION"))
    return found is not None and tuple(map(int, found.groups())) >= ALL_TIME


def time_min_words(least_minutes: float | None) -> list[str]:
    """Return the words for a job that may start with less than its time limit, where the queue has no more."""
    return [f"--time-min={math.ceil(least_minutes)}"] if least_minutes else []


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip() or done.stdout.strip() or f"sbatch: exit code {done.returncode}"


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run sbatch, but end it where it would try again for two minutes because the site's queue is full.

    It says so at once, and sleeps for a second first; ended then, it leaves nothing in the queue [measured, 22.05].
    """
    child = subprocess.Popen(
        ("sbatch", *words),
        env=_outside(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    late = threading.Timer(PATIENCE_SECONDS, child.kill)
    late.start()
    said = []
    with child:
        for line in child.stderr or ():
            said.append(line)
            if SLEEPS in line:
                child.kill()
                said.append(f"sbatch: error: {SITE_IS_FULL[0]}\n")
        stdout = child.stdout.read() if child.stdout else ""
    late.cancel()
    return subprocess.CompletedProcess(words, child.returncode, stdout, "".join(said))


def _outside(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment as outside of the job, whose variables would bend what sbatch does."""
    return {
        key: value
        for key, value in environment.items()
        if key == "SLURM_CONF" or not key.startswith(("SLURM_", "SBATCH_", "SRUN_"))
    }
