"""When Slurm would start a job that is not submitted: `sbatch --test-only`."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from datetime import datetime

from unbroken.slurm.commands import PATIENCE_SECONDS
from unbroken.slurm.sbatch import outside

# `sbatch: Job 12 to start at 2026-11-26T08:51:12 using 1 processors on nodes node1 in partition short` [Slurm 22.05].
_START = re.compile(r" to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\b")


def start_if_submitted(words: Sequence[str]) -> float | str:
    """Unix seconds at which a job would start if nobody submitted another one; else in one line why there is none."""
    command = ("sbatch", "--test-only", *words, "--wrap=true")
    try:
        done = subprocess.run(
            command,
            env=outside(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"sbatch: {error}"
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    found = _START.search("\n".join(said))
    if done.returncode != 0 or found is None:
        return said[-1].removeprefix("allocation failure: ") if said else f"sbatch: exit code {done.returncode}"
    return datetime.fromisoformat(found[1]).timestamp()
