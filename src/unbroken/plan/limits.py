"""Find what a cluster cannot do for a run before anything is queued, by the limits that sinfo prints.

Slurm refuses the rest when a job is submitted: a feature that no node has, a QOS that a partition does not take.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from unbroken.config.found import near
from unbroken.config.messages import listed
from unbroken.config.site import Request
from unbroken.runs.run import RunSpec
from unbroken.slurm import partitions as slurm
from unbroken.slurm.partitions import Partition, together


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


@dataclass(frozen=True)
class _Mistake:
    """A key of a run, and what is wrong with its value; `todo` is what to type, if not one of the `known` names."""

    key: str
    found: str
    todo: str = ""
    name: str = ""
    known: Sequence[str] = ()


def limit_mistakes(asked: Iterable[tuple[RunSpec, Request]], cluster: ClusterLimits, site_file: str) -> list[str]:
    """Return a line for each mistake, however many runs share it; one of the site is to be edited in `site_file`."""
    runs: dict[tuple[str, str], list[str]] = {}
    for run, request in asked:
        for mistake in _mistakes(run, request, cluster):
            runs.setdefault(_place_and_text(mistake, request, site_file), []).append(run.name)
    return [f"{_where(key, sharing)}: {text}" for (key, text), sharing in runs.items()]


def _place_and_text(mistake: _Mistake, request: Request, site_file: str) -> tuple[str, str]:
    """Return where the value was written, and the line with what to type instead."""
    source, guess = request.sources.get(mistake.key, ""), near(mistake.name, mistake.known)
    todo = mistake.todo or f"type another {mistake.key}"
    if is_of_site := source.startswith("site."):
        todo = f"edit {site_file}"
    if guess:
        todo = f"did you mean `{guess}`?" + (f" {todo}" if is_of_site else "")
    return source if is_of_site else mistake.key, f"{mistake.found}; {todo}"


def _where(key: str, runs: list[str]) -> str:
    """Return `site.account`, `runs.a.threads` or `runs.a.threads (and 3 more runs)`."""
    if key.startswith("site."):
        return key
    more = f" (and {len(runs) - 1} more run{'s' if len(runs) > 2 else ''})" if len(runs) > 1 else ""
    return f"runs.{runs[0]}.{key}{more}"


def _mistakes(run: RunSpec, request: Request, cluster: ClusterLimits) -> Iterator[_Mistake]:
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
    for key, found, has, todo in (*_of_size(run, partition, called), *_of_gpus(run, request, partition, called)):
        yield _Mistake(key, f"found {found}, but {has} (sinfo)", f"type {todo}")


def _unknown(key: str, value: str, known: Sequence[str], what: str) -> Iterator[_Mistake]:
    for name in value.split(",") if known else ():
        # Slurm writes accounts and QOS in small letters.
        if name and name not in known and (key == "partition" or name.lower() not in known):
            every = listed(list(known)).replace(" or ", " and ")
            yield _Mistake(key, f"found '{name}', but {what} are {every}", name=name, known=known)


def _of_time(run: RunSpec, partition: Partition, called: str) -> Iterator[_Mistake]:
    limit = partition.limit_minutes
    if math.ceil(run.segment_minutes) > limit:
        ends = f"{called} ends jobs after {limit:.10g} minutes (sinfo)"
        key = "segment_minutes" if run.least_minutes is None else "segment_minutes.at_most"
        todo = f"type {key.rpartition('.')[2]}: {math.floor(limit)} or less"
        yield _Mistake(key, f"found {run.segment_minutes:.10g}, but {ends}", todo)


# The key, what was found, what the cluster has, and what to type.
Excess = tuple[str, object, str, str]


def _of_size(run: RunSpec, partition: Partition, called: str) -> Iterator[Excess]:
    asked, nodes = run.resources, partition.node_count
    if (asked.nodes or 1) > nodes:
        yield "nodes", asked.nodes, f"{called} has {_some(nodes, 'node')}", f"nodes: {nodes} or less"
    # With `nodes: null`, Slurm may put each task on a node of its own.
    tasks = math.ceil(asked.tasks / asked.nodes) if asked.nodes else 1
    if asked.threads * tasks > partition.cpus:
        each = f" for each of {tasks} tasks on a node" if tasks > 1 else ""
        has = f"no node of {called} has more than {_some(partition.cpus, 'core')}"
        fits = partition.cpus // tasks
        more_nodes = f"nodes: {math.ceil(asked.tasks / max(1, partition.cpus))} or more"
        yield "threads", f"{asked.threads}{each}", has, f"threads: {fits} or less" if fits else more_nodes
    elif asked.threads * asked.tasks > (cores := partition.all_cpus):
        found = f"{asked.tasks} of {asked.threads} threads"
        yield "tasks", found, f"{called} has {cores} cores in all", f"tasks: {cores // asked.threads} or less"
    if asked.mem_mb > (most := partition.memory_mb):
        yield "mem_mb", asked.mem_mb, f"no node of {called} has more than {most} MB", f"mem_mb: {most} or less"


def _of_gpus(run: RunSpec, request: Request, partition: Partition, called: str) -> Iterator[Excess]:
    wanted, wanted_type, types = run.resources.gpus, request.gpu_type, partition.gpu_types
    nodes = run.resources.nodes or run.resources.tasks
    if not wanted:
        return
    if not types:
        yield "gpus", wanted, f"no node of {called} has a GPU", "gpus: 0"
    elif wanted_type is not None and wanted_type not in types:
        named = listed([name for name in types if name] or ["without a type"])
        yield "gpu_type", f"'{wanted_type}'", f"the GPUs of {called} are {named}", f"gpu_type: {types[0] or 'null'}"
    elif wanted > (most := partition.gpus(wanted_type) * nodes):
        where = f"no node of {called} has" if nodes == 1 else f"{nodes} nodes of {called} have no"
        has = f"{where} more than {most}{f' of type {wanted_type}' if wanted_type else ''}"
        yield "gpus", wanted, has, f"gpus: {most} or less"


def _some(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
