"""Translate what a run's jobs ask of Slurm into words of snakemake-executor-plugin-slurm and of sbatch."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

from unbroken.config.site import Request
from unbroken.config.tasks import SRUN
from unbroken.runs.run import RunSpec
from unbroken.slurm.sbatch_options import warning_words, without_exclude


def resources(run: RunSpec, request: Request) -> dict[str, str | int]:
    """Return the resources of a run's jobs; Slurm chooses what is not among them."""
    found: dict[str, str | int | None] = {
        "slurm_partition": request.partition,
        "slurm_account": request.account,
        "qos": request.qos,
        "constraint": request.constraint,
        # Without it, Slurm may spread the GPUs of one program over several nodes.
        "nodes": run.resources.nodes or (1 if run.resources.tasks == 1 else None),
        "gpu_model": request.gpu_type if run.resources.gpus else None,
    }
    if run.resources.tasks > 1:
        # The plugin then leaves the starting of tasks to the program's own srun.
        found |= {"tasks": run.resources.tasks, "mpi": SRUN}
        # Else the plugin asks for `tasks` tasks on each GPU (measured, 2.8.0).
        found |= {"tasks_per_gpu": 0} if run.resources.gpus else {}
    return {name: value for name, value in found.items() if value is not None}


def extra_words(run: RunSpec, request: Request) -> str:
    """Return further words for sbatch, quoted for the shell."""
    words = warning_words(math.ceil(run.least_minutes or run.segment_minutes), request.warn_seconds)
    asked, excluded = without_exclude(request.words)
    # Of two such options sbatch takes the last alone.
    return shlex.join([*words, *asked, f"--exclude={','.join(excluded)}"] if excluded else [*words, *asked])


def shared(values: Mapping[str, Any]) -> Any:
    """Return the value that all runs have, else a function of a job's wildcards.

    Snakemake calls such a function for each job, and there may be a hundred thousand.
    """
    return next(iter(values.values())) if len(set(values.values())) == 1 else lambda wildcards: values[wildcards.run]
