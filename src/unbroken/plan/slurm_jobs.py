"""The part of the plan that only Slurm needs: what each job asks for, and whether the cluster has it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unbroken.config import yaml_file
from unbroken.config.site import Site
from unbroken.config.tasks import mistakes_in_a_step
from unbroken.errors import ConfigError
from unbroken.plan.limits import ClusterLimits, absences, limit_mistakes
from unbroken.plan.resources import constant, extra_words, names, resources
from unbroken.plan.snakemake_speed import asked_often
from unbroken.runs.attempts import grown_memory, nodes_to_avoid, out_of_memory_kills_of
from unbroken.runs.layout import RunFolder
from unbroken.runs.run import Run
from unbroken.slurm import time_min
from unbroken.slurm.excluded_nodes import more_to_exclude, without_exclude
from unbroken.slurm.jobs_out import OutJob, described, jobs_out
from unbroken.slurm.partitions import ask_partitions

# Beside the site's file, if a profile has one.
PARTITIONS = "partitions.yaml"
# The executors that submit to Slurm.
EXECUTORS = ("slurm", "unbroken")


def jobs_of_earlier_starts(executor: str, folder: Path = Path()) -> list[str]:
    """Return a line for each run with jobs that are still out, where the executor does not take them over by itself.

    The plugin alone submits another one beside it, which is safe: it waits for the first, or finds its work done.
    """
    if executor != "slurm":
        return []
    beside = "another job is submitted beside it and will wait for it or find its work done"
    by_run = defaultdict[str, list[OutJob]](list)
    for job in jobs_out(folder):
        by_run[job.run].append(job)
    return [f"{run}: {'; '.join(described(jobs))}, of an earlier start; {beside}" for run, jobs in by_run.items()]


def unused_least_minutes(runs: Sequence[Run], executor: str) -> list[str]:
    """Return one line if runs accept less time (`at_least`) and this executor, or this Slurm, cannot give them less."""
    ours = [run for run in runs if run.least_minutes is not None]
    if not ours or executor not in EXECUTORS:
        return []
    first, count = ours[0], len(ours) - 1
    where = f"runs.{first.name}.segment_minutes" + (
        f" (and {count} more run{'s' if count > 1 else ''})" if count else ""
    )
    if executor == "slurm":
        why = "executor: slurm counts at_most alone; to start jobs with less, type executor: unbroken in the profile"
    elif time_min.gives_all_time():
        return []
    else:
        why = f"before Slurm 25.05.3 at_most alone counts; to say so, type segment_minutes: {first.segment_minutes:g}"
    return [f"{where}: {why}"]


class SlurmPlan:
    """The runs of a plan on one cluster; `runs` gives them with the modules of the site."""

    def __init__(
        self, runs: Sequence[Run], site: Site, base: Path, is_driver: bool, tell: Callable[[str], None]
    ) -> None:
        self._requests = {run.name: site.request(run) for run in runs}
        self.runs = tuple(replace(run, modules=self._requests[run.name].modules) for run in runs)
        self._by_name = {run.name: run for run in self.runs}
        self._resources = {run.name: resources(run, self._requests[run.name]) for run in self.runs}
        self._base, self._is_driver, self._tell = base, is_driver, tell
        self._cluster = ClusterLimits({})
        self._told: set[str] = set()
        self._killed: dict[str, int] = {}
        self._bad_nodes: dict[str, list[str]] = {}

    def mistakes(self, files: Sequence[str]) -> list[str]:
        """What the cluster cannot do for the runs, a line each; `files` are those that the config was read from."""
        asked = [(run, self._requests[run.name]) for run in self.runs]
        if any(request.partition is None for request in self._requests.values()):
            _point_to_partitions(site_file(files))
        found = [line for run in self.runs for line in mistakes_in_a_step(run)]
        try:
            self._cluster = ClusterLimits(ask_partitions())
        except ConfigError as error:
            return [*found, *error.mistakes]
        for line in absences(asked, self._cluster):
            self._tell(line)
        return found + limit_mistakes(asked, self._cluster, lambda: site_file(files))

    def rule_resources(self) -> dict[str, Any]:
        """For the rules: a value where all runs share it, else a function of the wildcards."""
        every = list(self._resources.values())
        found = {name: constant(name, every) or self._asker(name) for name in names(every)}
        return {**found, "slurm_extra": self._extra_asker()}

    def mem_mb(self, run: str, segment: str) -> int:
        """What the config says, more after attempts that ran out of it; asked anew at each attempt."""
        known = self._by_name[run]
        if self._is_driver and (run not in self._killed or self._is_next(run, segment)):
            self._killed[run] = out_of_memory_kills_of(run, known.mem_mb, self._base)
        # The segments behind the next one need as much, and without a driver they are submitted now.
        times = self._killed.get(run, 0)
        if not times:
            return known.mem_mb
        partition = self._cluster.of(self._requests[run])
        memory = grown_memory(known.mem_mb, known.memory_growth, times, partition.memory_mb if partition else 0)
        ended = f"{times} attempt{'s' if times > 1 else ''} ran out of memory"
        self._tell_once(f"{run}: {ended}; asking for {memory} MB; to start with that, set mem_mb: {memory}")
        return memory

    def _asker(self, name: str) -> Callable[[Any], str | int | None]:
        def ask(wildcards: Any) -> str | int | None:
            return self._resources[wildcards.run].get(name)

        return asked_often(ask)

    def _extra_asker(self) -> Callable[[Any], str]:
        def ask(wildcards: Any) -> str:
            run, request = self._by_name[wildcards.run], self._requests[wildcards.run]
            return extra_words(run, request, self._avoided(run, wildcards.segment))

        return asked_often(ask)

    def _avoided(self, run: Run, segment: str) -> list[str]:
        if self._is_driver and (run.name not in self._bad_nodes or self._is_next(run.name, segment)):
            self._bad_nodes[run.name] = nodes_to_avoid(run.name, self._base)
        partition = self._cluster.of(self._requests[run.name])
        spare = max(0, (partition.node_count if partition else 0) - (run.nodes or run.tasks))
        # As with the memory: without a driver the segments behind the next one are submitted now.
        _, excluded = without_exclude(self._requests[run.name].words)
        avoid = more_to_exclude(excluded, self._bad_nodes.get(run.name, []), spare)
        if avoid:
            self._tell_once(f"{run.name}: not on {', '.join(avoid)}, where it failed repeatedly")
        return avoid

    def _is_next(self, run: str, segment: str) -> bool:
        """True in the driver for the segment that can start now; a history need not be read for all that follow it.

        Snakemake asks again when a segment's turn has come, and at each of its attempts.
        """
        before = int(segment) - 1
        return self._is_driver and (not before or RunFolder(run, self._base).record(before).exists())

    def _tell_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._tell(line)


def _point_to_partitions(site: str) -> None:
    """Tells Snakemake's Slurm plugin of the partitions that it may choose from, which stand beside the site.

    A line of the profile cannot: the plugin reads its path after `--directory` has been entered (measured, 2.8.0).
    """
    file = Path(site).absolute().with_name(PARTITIONS)
    if file.is_file():
        os.environ.setdefault("SNAKEMAKE_SLURM_PARTITIONS", str(file))


def site_file(files: Sequence[str]) -> str:
    """The file that brought the site, as a user who stands here would name it."""
    for file in reversed(files):
        try:
            data = yaml_file.read(Path(file))
        except (OSError, ConfigError):
            continue
        if isinstance(data, Mapping) and "site" in data:
            path = Path(file).resolve()
            return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
    return "site.yaml in the folder of the profile"


def missing_site(executor: str) -> str:
    """What to say where jobs are to go to Slurm and no site is in the config; empty for other executors."""
    if executor not in EXECUTORS:
        return ""
    why = (
        "jobs are to go to Slurm, but the config has no `site`: --configfile takes the place of the profile's own file"
    )
    example = os.path.join("profiles", "slurm", "site.yaml")
    return f"site: {why}; type --profile slurm without it, or name both: --configfile {example} YOURS"
