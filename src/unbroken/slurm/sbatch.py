"""Submitting a job to Slurm from inside of another one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# sbatch itself tries for a while to reach a controller that is away.
PATIENCE_SECONDS = 300.0
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
        done = subprocess.run(
            ("sbatch", *words),
            env=outside(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Answer("", f"sbatch: {error}")
    found = _JOB.search(done.stdout) if done.returncode == 0 else None
    if found is None:
        said = done.stderr.strip() or done.stdout.strip() or f"sbatch: exit code {done.returncode}"
        return Answer("", said, done.returncode == -signal.SIGTERM)
    return Answer(found[1])


def outside(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment as outside of the job, whose variables would bend what sbatch does."""
    return {
        key: value
        for key, value in environment.items()
        if key == "SLURM_CONF" or not key.startswith(("SLURM_", "SBATCH_", "SRUN_"))
    }
