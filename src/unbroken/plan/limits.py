"""Find what a cluster cannot do for a run before anything is queued, by the limits that sinfo prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from unbroken.config.found import near
from unbroken.config.messages import listed
from unbroken.config.site import Request
from unbroken.runs.run import RunSpec
from unbroken.slurm import partitions as slurm
from unbroken.slurm.partitions import Partition, Qos, together


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

    @cached_property
    def qos_of(self) -> dict[str, Qos]:
        """Return which QOS the partitions take."""
        return slurm.qos_by_partition()


@dataclass(frozen=True)
class _Mistake:
    """A key of a run, and what is wrong with its value; `todo` is what to type, if not one of the `known` names."""

    key: str
    found: str
    todo: str = ""
    name: str = ""
    known: Sequence[str] = ()


Asked = tuple[RunSpec, Request]


def limit_mistakes(asked: Iterable[Asked], cluster: ClusterLimits, site_file: Callable[[], str]) -> list[str]:
    """Return a line for each mistake, however many runs share it; one of the site is to be edited in `site_file`."""
    runs: dict[tuple[str, str], list[str]] = {}
    for run, request in asked:
        for mistake in _mistakes(run, request, cluster):
            runs.setdefault(_place_and_text(mistake, request, site_file), []).append(run.name)
    return [f"{_where(key, sharing)}: {text}" for (key, text), sharing in runs.items()]


def absences(asked: Iterable[Asked], cluster: ClusterLimits) -> list[str]:
    """Return a line for each partition in use in which no job can start at present."""
    used = {request.partition: cluster.of(request) for _, request in asked}
    away = [partition for partition in used.values() if partition is not None and not partition.is_there]
    return [f"{_called(partition)} is down or all its nodes are (sinfo); its jobs will wait" for partition in away]


def _place_and_text(mistake: _Mistake, request: Request, site_file: Callable[[], str]) -> tuple[str, str]:
    """Return where the value was written, and the line with what to type instead."""
    source, guess = request.sources.get(mistake.key, ""), near(mistake.name, mistake.known)
    todo = mistake.todo or f"type another {mistake.key}"
    if is_of_site := source.startswith("site."):
        todo = f"edit {site_file()}"
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
        yield from _of_qos(request.qos, request, cluster)
    if request.partition:
        known = list(cluster.partitions)
        yield from _unknown("partition", request.partition, known, "the partitions of this cluster (sinfo)")
    if request.constraint:
        yield from _of_constraint(request.constraint, (request.partition or "").split(","), cluster.partitions)
    partition = cluster.of(request)
    if partition is not None:
        yield from _of_time(run, partition)
        yield from _of_size(run, partition)
        yield from _of_gpus(run, request.gpu_type, partition)


def _unknown(key: str, value: str, known: Sequence[str], what: str) -> Iterator[_Mistake]:
    for name in value.split(",") if known else ():
        # Slurm writes accounts and QOS in small letters.
        if name and name not in known and (key == "partition" or name.lower() not in known):
            yield _Mistake(key, f"found '{name}', but {what} are {_all_of(known)}", name=name, known=known)


def _of_qos(qos: str, request: Request, cluster: ClusterLimits) -> Iterator[_Mistake]:
    unknown = list(_unknown("qos", qos, cluster.qos, "the QOS of this cluster (sacctmgr)"))
    yield from unknown
    taken = [cluster.qos_of.get(name) for name in (request.partition or "").split(",")]
    known = [each for each in taken if each is not None]
    # Where the plugin or Slurm may choose among partitions, one that takes it is enough.
    if unknown or len(known) < len(taken) or any(each.allows(qos) for each in known):
        return
    allowed = list(dict.fromkeys(name for each in known for name in each.allowed or ()))
    takes = f"takes no other QOS than {_all_of(allowed)}" if allowed else "does not take it"
    found = f"found '{qos}', but partition {request.partition} {takes} (scontrol show partition)"
    yield _Mistake("qos", found, name=qos, known=allowed)


def _of_constraint(constraint: str, partitions: Sequence[str], every: Mapping[str, Partition]) -> Iterator[_Mistake]:
    # Of several alternative partitions or features, one that exists anywhere may do.
    is_anywhere = slurm.is_choice(constraint) or not all(name in every for name in partitions)
    among = list(every) if is_anywhere else partitions
    known = sorted({feature for name in among for feature in every[name].features})
    nodes = "no node" if is_anywhere else f"no node of partition {','.join(partitions)}"
    have = f"their features are {_all_of(known)}" if known else "no feature is known there"
    for feature in slurm.features_in(constraint):
        if feature not in known:
            found = f"found '{constraint}', but {nodes} has the feature {feature} (sinfo); {have}"
            yield _Mistake("constraint", found, name=feature, known=known)


def _of_time(run: RunSpec, partition: Partition) -> Iterator[_Mistake]:
    limit = partition.limit_minutes
    if math.ceil(run.segment_minutes) > limit:
        ends = f"{_called(partition)} ends jobs after {limit:.10g} minutes (sinfo)"
        key = "segment_minutes" if run.least_minutes is None else "segment_minutes.at_most"
        todo = f"type {key.rpartition('.')[2]}: {math.floor(limit)} or less"
        yield _Mistake(key, f"found {run.segment_minutes:.10g}, but {ends}", todo)


def _of_size(run: RunSpec, partition: Partition) -> Iterator[_Mistake]:
    called, nodes = _called(partition), run.resources.nodes or 1
    if nodes > partition.node_count:
        has = f"{called} has {_some(partition.node_count, 'node')} (sinfo)"
        yield _Mistake(
            "nodes", f"found {run.resources.nodes}, but {has}", f"type nodes: {partition.node_count} or less"
        )
    # With `nodes: null`, Slurm may put each task on a node of its own.
    tasks = math.ceil(run.resources.tasks / run.resources.nodes) if run.resources.nodes else 1
    if run.resources.threads * tasks > partition.cpus:
        each = f" for each of {tasks} tasks on a node" if tasks > 1 else ""
        has = f"no node of {called} has more than {_some(partition.cpus, 'core')} (sinfo)"
        fits = partition.cpus // tasks
        more_nodes = f"type nodes: {math.ceil(run.resources.tasks / max(1, partition.cpus))} or more"
        todo = f"type threads: {fits} or less" if fits else more_nodes
        yield _Mistake("threads", f"found {run.resources.threads}{each}, but {has}", todo)
    elif run.resources.threads * run.resources.tasks > (cores := partition.all_cpus):
        has = f"{called} has {cores} cores in all (sinfo)"
        todo = f"type tasks: {cores // run.resources.threads} or less"
        yield _Mistake("tasks", f"found {run.resources.tasks} of {run.resources.threads} threads, but {has}", todo)
    if run.resources.mem_mb > (most := partition.memory_mb):
        has = f"no node of {called} has more than {most} MB (sinfo)"
        yield _Mistake("mem_mb", f"found {run.resources.mem_mb}, but {has}", f"type mem_mb: {most} or less")


def _of_gpus(run: RunSpec, gpu_type: str | None, partition: Partition) -> Iterator[_Mistake]:
    called, types, nodes = _called(partition), partition.gpu_types, run.resources.nodes or run.resources.tasks
    if not run.resources.gpus:
        return
    if not types:
        yield _Mistake("gpus", f"found {run.resources.gpus}, but no node of {called} has a GPU (sinfo)", "type gpus: 0")
    elif gpu_type is not None and gpu_type not in types:
        named = listed([name for name in types if name] or ["without a type"])
        found = f"found '{gpu_type}', but the GPUs of {called} are {named} (sinfo)"
        yield _Mistake("gpu_type", found, f"type gpu_type: {types[0] or 'null'}")
    elif run.resources.gpus > (most := partition.gpus(gpu_type) * nodes):
        where = f"no node of {called} has" if nodes == 1 else f"{nodes} nodes of {called} have no"
        has = f"{where} more than {most}{f' of type {gpu_type}' if gpu_type else ''} (sinfo)"
        yield _Mistake("gpus", f"found {run.resources.gpus}, but {has}", f"type gpus: {most} or less")


def _all_of(known: Sequence[str]) -> str:
    return listed(list(known)).replace(" or ", " and ")


def _called(partition: Partition) -> str:
    return f"partition {partition.name}" if partition.name else "the cluster"


def _some(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
