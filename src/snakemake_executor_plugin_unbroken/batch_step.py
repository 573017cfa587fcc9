"""A segment's job runs one Snakemake, in its batch step; the parent's runs a second one, in a step of its own.

One start less, which takes a second or two.  And no signal of Slurm reaches the Snakemake in the batch step, which
would count the job as failed and remove its record; the segment hears it all the same (unbroken.slurm.signal_relay).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from snakemake_interface_common.exceptions import WorkflowError

# What the parent puts into every job's command (snakemake-executor-plugin-slurm 2.8, additional_general_args).
PARENTS = "--executor slurm-jobstep --jobs 1"
# A record is published in one step, so there is none that is half made; and a driver may have taken it for the end of
# the segment already when Slurm lets the job fail.
OURS = "--executor local --keep-incomplete"


# When Slurm ends a job it sends TERM to the first process of the batch step, a shell.  If that dies, everything in the
# job is killed at once (measured with control groups, Slurm 22.05); as long as it waits, the segment has Slurm's
# KillWait to save.  Not `trap ''`, which the programs below would inherit.
PATIENT = "trap : TERM; "


def in_the_batch_step(exec_job: str) -> str:
    """The command of a job without the parent's second Snakemake; WorkflowError if the parent has changed."""
    if exec_job.count(PARENTS) != 1:
        raise WorkflowError(f"the command of a job lacks {PARENTS!r}: another snakemake-executor-plugin-slurm than 2.8")
    return exec_job.replace(PARENTS, OURS)


def behind(exec_job: str, module: str, words: Sequence[str]) -> str:
    """The same command, started and followed by a module of ours; WorkflowError if the parent has changed."""
    start = f"{sys.executable} -m snakemake"
    if start not in exec_job:
        raise WorkflowError(f"the command of a job lacks {start!r}: another snakemake-executor-plugin-slurm than 2.8")
    return exec_job.replace(start, f"{sys.executable} {shlex.join(['-m', module, *words, '--'])} {start}", 1)
