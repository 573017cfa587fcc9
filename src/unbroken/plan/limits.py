"""Find what a cluster cannot do for a run before anything is queued, by the limits that sinfo prints.

Slurm refuses the rest when a job is submitted: a feature that no node has, a QOS that a partition does not take.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from unbroken.config.found import near
from unbroken.config.messages import listed
from unbroken.config.site import Request
from unbroken.errors import Mistake
from unbroken.slurm import partitions as slurm
from unbroken.slurm.partitions import Partition, together
from unbroken.store.run import RunSpec


@dataclass(frozen=True)
class ClusterLimits:
    """Hold what Slurm says about the cluster, asked once for all runs; what it does not say refuses nothing."""

    partitions: Mapping[str, Partition]

    def of(self, request: Request) -> Partition | None:
        """Return the partition of a run, several taken together where the plugin may choose; None if there is none."""
        if request.partition is None:
            return together(self.partitions.values(), "")
        named = [self.partitions.get(name) for name in request.partition.split(",")]
        known = [partition for partition in named if partition is not None]
        return together(known, request.partition) if len(known) == len(named) else None

    @cached_property
    def accounts(self) -> list[str]:
        return slurm.accounts()

    @cached_property
    def qos(self) -> list[str]:
        return slurm.qos_names()


def limit_mistakes(asked: Iterable[tuple[RunSpec, Request]], cluster: ClusterLimits, site_file: str) -> list[str]:
    """Return a line for each mistake, however many runs share it; one of the site is to be edited in `site_file`."""
    runs: dict[Mistake, list[str]] = {}
    for run, request in asked:
        for mistake in _mistakes(run, request, cluster):
            source = request.sources.get(mistake.where, "")
            is_of_site = source.startswith("site.")
            found = replace(mistake, where=source, todo=f"edit {site_file}") if is_of_site else mistake
            runs.setdefault(found, []).append(run.name)
    return [str(mistake.at(where_written(mistake.where, sharing))) for mistake, sharing in runs.items()]


def where_written(key: str, runs: list[str]) -> str:
    """Return `site.account`, `runs.a.threads` or `runs.a.threads (and 3 more runs)`."""
    if key.startswith("site."):
        return key
    more = f" (and {len(runs) - 1} more run{'s' if len(runs) > 2 else ''})" if len(runs) > 1 else ""
    return f"runs.{runs[0]}.{key}{more}"


def _mistakes(run: RunSpec, request: Request, cluster: ClusterLimits) -> Iterator[Mistake]:
    """Yield mistakes whose `where` is a key of the run."""
    if request.account:
        yield from _unknown("account", request.account, cluster.accounts, "your accounts (sacctmgr)")
    if request.qos:
        yield from _unknown("qos", request.qos, cluster.qos, "the QOS of this cluster (sacctmgr)")
    if request.partition:
        known = list(cluster.partitions)
        yield from _unknown("partition", request.partition, known, "the partitions of this cluster (sinfo)")
    if (partition := cluster.of(request)) is None:
        return
    called = f"partition {partition.name}" if partition.name else "the cluster"
    yield from _of_time(run, partition, called)
    yield from _of_size(run, partition, called)
    yield from _of_gpus(run, request, partition, called)


def _unknown(key: str, value: str, known: Sequence[str], what: str) -> Iterator[Mistake]:
    for name in value.split(",") if known else ():
        # Slurm writes accounts and QOS in small letters.
        if name and name not in known and (key == "partition" or name.lower() not in known):
            every = listed(list(known)).replace(" or ", " and ")
            found, meant = f"found '{name}', but {what} are {every}", near(name, known)
            if meant:
                yield Mistake(f"{found}; did you mean `{meant}`?", where=key)
            else:
                yield Mistake(found, todo=f"type another {key}", where=key)


def _exceeds(key: str, found: object, has: str, todo: str) -> Mistake:
    return Mistake(f"found {found}, but {has} (sinfo)", todo=f"type {todo}", where=key)


def _of_time(run: RunSpec, partition: Partition, called: str) -> Iterator[Mistake]:
    limit = partition.limit_minutes
    if math.ceil(run.segment_minutes) > limit:
        key = "segment_minutes" if run.least_minutes is None else "segment_minutes.at_most"
        ends, todo = f"{called} ends jobs after {limit:.10g} minutes", f"{key.rpartition('.')[2]}: {math.floor(limit)}"
        yield _exceeds(key, f"{run.segment_minutes:.10g}", ends, f"{todo} or less")


def _of_size(run: RunSpec, partition: Partition, called: str) -> Iterator[Mistake]:
    asked, nodes = run.resources, partition.node_count
    if (asked.nodes or 1) > nodes:
        yield _exceeds("nodes", asked.nodes, f"{called} has {_some(nodes, 'node')}", f"nodes: {nodes} or less")
    # With `nodes: null`, Slurm may put each task on a node of its own.
    tasks = math.ceil(asked.tasks / asked.nodes) if asked.nodes else 1
    if asked.threads * tasks > partition.cpus:
        each = f" for each of {tasks} tasks on a node" if tasks > 1 else ""
        has = f"no node of {called} has more than {_some(partition.cpus, 'core')}"
        fits = partition.cpus // tasks
        more_nodes = f"nodes: {math.ceil(asked.tasks / max(1, partition.cpus))} or more"
        yield _exceeds("threads", f"{asked.threads}{each}", has, f"threads: {fits} or less" if fits else more_nodes)
    elif asked.threads * asked.tasks > (cores := partition.all_cpus):
        found = f"{asked.tasks} of {asked.threads} threads"
        yield _exceeds("tasks", found, f"{called} has {cores} cores in all", f"tasks: {cores // asked.threads} or less")
    if asked.mem_mb > (most := partition.memory_mb):
        has = f"no node of {called} has more than {most} MB"
        yield _exceeds("mem_mb", asked.mem_mb, has, f"mem_mb: {most} or less")


def _of_gpus(run: RunSpec, request: Request, partition: Partition, called: str) -> Iterator[Mistake]:
    wanted, wanted_type, types = run.resources.gpus, request.gpu_type, partition.gpu_types
    nodes = run.resources.nodes or run.resources.tasks
    if not wanted:
        return
    if not types:
        yield _exceeds("gpus", wanted, f"no node of {called} has a GPU", "gpus: 0")
    elif wanted_type is not None and wanted_type not in types:
        named = listed([name for name in types if name] or ["without a type"])
        has = f"the GPUs of {called} are {named}"
        yield _exceeds("gpu_type", f"'{wanted_type}'", has, f"gpu_type: {types[0] or 'null'}")
    elif wanted > (most := partition.gpus(wanted_type) * nodes):
        where = f"no node of {called} has" if nodes == 1 else f"{nodes} nodes of {called} have no"
        has = f"{where} more than {most}{f' of type {wanted_type}' if wanted_type else ''}"
        yield _exceeds("gpus", wanted, has, f"gpus: {most} or less")


def _some(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
