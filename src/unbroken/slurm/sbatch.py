"""What sbatch is asked: to submit a job from inside of another one, and when it would start one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from unbroken.slurm.refusals import SITE_IS_FULL

# sbatch itself tries for a while to reach a controller that is away.  Less than others wait for the process that
# submits (unbroken.job.submissions).
PATIENCE_SECONDS = 150.0
# The end of the line after which it does so at MaxJobCount: "Slurm temporarily unable to accept job, ..." or, from
# 26.05 on, "Slurm job queue full, ..." [sbatch.c].
SLEEPS = "sleeping and retrying"
# `sbatch: Job 12 to start at 2026-11-26T08:51:12 using 1 processors on nodes node1 in partition short` [Slurm 22.05].
_START = re.compile(r" to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\b")
_JOB = re.compile(r"^(\d+)(?:;\S*)?\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """What sbatch said: the number of the job that it took; else its words, and whether a TERM ended it."""

    job_id: str
    said: str = ""
    is_ended: bool = False


def sbatch(words: Sequence[str]) -> Answer:
    """Submits a job; `words` hold --parsable."""
    try:
        done = _said_at_once(words)
    except OSError as error:
        return Answer("", f"sbatch: {error}")
    found = _JOB.search(done.stdout) if done.returncode == 0 else None
    if found is None:
        said = done.stderr.strip() or done.stdout.strip() or f"sbatch: exit code {done.returncode}"
        return Answer("", said, done.returncode == -signal.SIGTERM)
    return Answer(found[1])


def start_if_submitted(words: Sequence[str]) -> float | str:
    """Unix seconds at which a job would start if nobody submitted another one; else in one line why there is none."""
    try:
        done = _said(["--test-only", *words, "--wrap=true"])
    except (OSError, subprocess.SubprocessError) as error:
        return f"sbatch: {error}"
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    found = _START.search("\n".join(said))
    if done.returncode != 0 or found is None:
        return said[-1].removeprefix("allocation failure: ") if said else f"sbatch: exit code {done.returncode}"
    return datetime.fromisoformat(found[1]).timestamp()


def _said(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ("sbatch", *words),
        env=outside(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def _said_at_once(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run sbatch, but end it where it would try again for two minutes because the site's queue is full.

    It says so at once, and sleeps for a second first; ended then, it leaves nothing in the queue [measured, 22.05].
    """
    child = subprocess.Popen(
        ("sbatch", *words),
        env=outside(os.environ),
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


def outside(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment as outside of the job, whose variables would bend what sbatch does."""
    return {
        key: value
        for key, value in environment.items()
        if key == "SLURM_CONF" or not key.startswith(("SLURM_", "SBATCH_", "SRUN_"))
    }
