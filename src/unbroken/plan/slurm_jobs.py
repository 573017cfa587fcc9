"""The part of the plan that only Slurm needs: what each job asks for, and whether the cluster has it."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from unbroken.config.site import Request, Site
from unbroken.config.tasks import SRUN, mistakes_in_a_step
from unbroken.errors import ConfigError
from unbroken.plan.limits import ClusterLimits, limit_mistakes, where_written
from unbroken.slurm.partitions import ask_partitions
from unbroken.slurm.sbatch import gives_all_time, warning_words, without_exclude
from unbroken.store.run import RunSpec

# The files of a profile for Slurm; the second one is optional.
SITE, PARTITIONS = "site.yaml", "partitions.yaml"
# The executors that submit to Slurm.
EXECUTORS = ("slurm", "unbroken")


class SlurmPlan:
    """The runs of a plan on one cluster; `runs` have the modules of the site."""

    def __init__(self, runs: Sequence[RunSpec], site: Site) -> None:
        self._requests = {run.name: site.request(run) for run in runs}
        self.runs = tuple(run.changed(modules=self._requests[run.name].modules) for run in runs)

    def mistakes(self, files: Sequence[str]) -> list[str]:
        """Return a line for each thing that the cluster cannot do; `files` are those that the config was read from."""
        asked = [(run, self._requests[run.name]) for run in self.runs]
        if any(request.partition is None for request in self._requests.values()):
            _point_to_partitions(site_file(files))
        found = [line for run in self.runs for line in mistakes_in_a_step(run)]
        try:
            cluster = ClusterLimits(ask_partitions())
        except ConfigError as error:
            return [*found, *error.mistakes]
        return found + limit_mistakes(asked, cluster, site_file(files))

    def resources(self, run: RunSpec) -> dict[str, str | int]:
        """Return what a run's jobs ask of Slurm."""
        request = self._requests[run.name]
        return {**resources(run, request), "slurm_extra": extra_words(run, request)}


def _point_to_partitions(site: str) -> None:
    """Point Snakemake's Slurm plugin to the partitions that it may choose from, in a file next to the site.

    A line of the profile cannot: the plugin reads its path after `--directory` has been entered (measured, 2.8.0).
    """
    file = Path(site).absolute().with_name(PARTITIONS)
    if file.is_file():
        os.environ.setdefault("SNAKEMAKE_SLURM_PARTITIONS", str(file))


def site_file(files: Sequence[str]) -> str:
    """Return the file of the site, as a user who stands here would name it."""
    found = next((Path(file).resolve() for file in reversed(files) if Path(file).name == SITE), None)
    if found is None:
        return f"{SITE} in the folder of the profile"
    return str(found.relative_to(Path.cwd())) if found.is_relative_to(Path.cwd()) else str(found)


def missing_site(executor: str) -> str:
    """Return the refusal of a start whose jobs go to Slurm without a site in the config; empty for other executors."""
    if executor not in EXECUTORS:
        return ""
    why = "jobs are to go to Slurm, but the config has no `site`: --configfile takes the place of the profile's own"
    todo = "type --profile slurm without it, or name both: --configfile profiles/slurm/site.yaml YOURS"
    return f"site: {why} file; {todo}"


def unused_least_minutes(runs: Sequence[RunSpec], executor: str) -> list[str]:
    """Return one line if runs accept less time (`at_least`), and this executor or this Slurm cannot give them less."""
    ours = [run for run in runs if run.least_minutes is not None]
    if not ours or executor not in EXECUTORS or (executor == "unbroken" and gives_all_time()):
        return []
    needs = "at_least needs executor: unbroken, and Slurm 25.05.3 or later"
    todo = f"to say so, type segment_minutes: {ours[0].segment_minutes:g}"
    where = where_written("segment_minutes", [run.name for run in ours])
    return [f"{where}: at_most alone counts; {needs}; {todo}"]


# --- what a run's jobs ask, in the words of snakemake-executor-plugin-slurm and of sbatch ---


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
