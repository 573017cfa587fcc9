"""What a cluster cannot do for a run, said before anything is queued: limits as sinfo tells them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from unbroken.config.messages import listed, near
from unbroken.config.site import Request
from unbroken.runs.run import Run
from unbroken.slurm import names
from unbroken.slurm.partitions import Partition, together


@dataclass(frozen=True)
class ClusterLimits:
    """What was asked of Slurm once, for all runs."""

    partitions: Mapping[str, Partition]

    def of(self, request: Request) -> Partition | None:
        """The partition of a run, several taken together where the plugin may choose; None if there is none."""
        if request.partition is None:
            return self._any
        named = [self.partitions.get(name) for name in request.partition.split(",")]
        known = [partition for partition in named if partition is not None]
        return together(known, request.partition) if len(known) == len(named) else None

    @cached_property
    def _any(self) -> Partition:
        return together(self.partitions.values(), "")

    @cached_property
    def accounts(self) -> list[str]:
        """Those of this user; none if they cannot be asked for."""
        return names.accounts() or []

    @cached_property
    def qos(self) -> list[str]:
        """Those of the cluster; none if they cannot be asked for."""
        return names.qos_names() or []

    @cached_property
    def doors(self) -> dict[str, names.Doors]:
        """Which QOS the partitions let in; empty if they cannot be asked."""
        return names.doors() or {}

    @cached_property
    def features(self) -> dict[str, set[str]]:
        """What the nodes of the partitions have; empty if they cannot be asked."""
        return names.features() or {}


Asked = tuple[Run, Request]


def limit_mistakes(asked: Iterable[Asked], cluster: ClusterLimits, site_file: Callable[[], str]) -> list[str]:
    """A line for each mistake, also where many runs share it; `site_file` is what to edit for a mistake of the site."""
    runs: dict[tuple[str, str], list[str]] = {}
    for run, request in asked:
        for key, text in _mistakes(run, request, cluster, site_file):
            runs.setdefault((key, text), []).append(run.name)
    return [f"{_where(key, sharing)}: {text}" for (key, text), sharing in runs.items()]


def absences(asked: Iterable[Asked], cluster: ClusterLimits) -> list[str]:
    """A line for each partition in use in which no job can start at present."""
    used = {request.partition: cluster.of(request) for _, request in asked}
    away = [partition for partition in used.values() if partition is not None and not partition.is_there]
    return [f"{_called(partition)} is down or all its nodes are (sinfo); its jobs will wait" for partition in away]


def _where(key: str, runs: list[str]) -> str:
    """`site.account`, `runs.a.threads`, `runs.a.threads (and 3 more runs)`."""
    if key.startswith("site."):
        return key
    more = f" (and {len(runs) - 1} more run{'s' if len(runs) > 2 else ''})" if len(runs) > 1 else ""
    return f"runs.{runs[0]}.{key}{more}"


def _mistakes(
    run: Run, request: Request, cluster: ClusterLimits, site_file: Callable[[], str]
) -> Iterator[tuple[str, str]]:
    accounts = cluster.accounts if request.account else []
    yield from _of_names("account", request, accounts, "your accounts (sacctmgr) are {}", site_file)
    known = list(cluster.partitions)
    yield from _of_names("partition", request, known, "the partitions of this cluster (sinfo) are {}", site_file)
    yield from _of_qos(request, cluster, site_file)
    yield from _of_constraint(request, cluster, site_file)
    partition = cluster.of(request)
    if partition is not None:
        yield from _of_time(run, partition)
        yield from _of_size(run, partition)
        yield from _of_gpus(run, request, partition, site_file)


def _of_names(
    key: str, request: Request, known: list[str], are: str, site_file: Callable[[], str]
) -> Iterator[tuple[str, str]]:
    value: str | None = getattr(request, key)
    for name in (value or "").split(",") if known else ():
        # Slurm writes accounts and QOS in small letters.
        if name and name not in known and (key == "partition" or name.lower() not in known):
            where, hint = _hint(key, name, request, known, site_file)
            yield where, f"found '{name}', but {are.format(_all_of(known))}; {hint}"


def _of_qos(request: Request, cluster: ClusterLimits, site_file: Callable[[], str]) -> Iterator[tuple[str, str]]:
    qos = request.qos
    if qos is None:
        return
    are = "the QOS of this cluster (sacctmgr) are {}"
    unknown = list(_of_names("qos", request, cluster.qos, are, site_file))
    yield from unknown
    doors = [cluster.doors.get(name) for name in (request.partition or "").split(",")]
    known = [door for door in doors if door is not None]
    # Where the plugin or Slurm may choose among partitions, one that lets it in is enough.
    if unknown or len(known) < len(doors) or any(door.lets_in(qos) for door in known):
        return
    allowed = list(dict.fromkeys(name for door in known for name in door.allowed or ()))
    where, hint = _hint("qos", qos, request, allowed, site_file)
    takes = f"takes no other QOS than {_all_of(allowed)}" if allowed else "does not take it"
    yield where, f"found '{qos}', but partition {request.partition} {takes} (scontrol show partition); {hint}"


def _of_constraint(request: Request, cluster: ClusterLimits, site_file: Callable[[], str]) -> Iterator[tuple[str, str]]:
    constraint = request.constraint
    if constraint is None or not cluster.features:
        return
    partitions = (request.partition or "").split(",")
    # Of several partitions or features that may stand for each other, one that exists anywhere may do.
    is_anywhere = names.is_choice(constraint) or not all(name in cluster.features for name in partitions)
    among = list(cluster.features) if is_anywhere else partitions
    known = sorted(set[str]().union(*(cluster.features[name] for name in among)))
    for feature in names.features_in(constraint):
        if feature not in known:
            where, hint = _hint("constraint", feature, request, known, site_file)
            nodes = "no node" if is_anywhere else f"no node of partition {request.partition}"
            have = f"their features are {_all_of(known)}" if known else "no feature is known there"
            yield where, f"found '{constraint}', but {nodes} has the feature {feature} (sinfo); {have}; {hint}"


def _hint(key: str, name: str, request: Request, known: list[str], site_file: Callable[[], str]) -> tuple[str, str]:
    """The place where the name was written, and what to type in its stead."""
    where, todo = _source(request.sources[key], site_file)
    guess = near(name, known)
    hint = f"did you mean `{guess}`?" if guess else todo
    return where, f"{hint} {todo}" if guess and where.startswith("site.") else hint


def _all_of(known: list[str]) -> str:
    return listed(known).replace(" or ", " and ")


def _source(source: str, site_file: Callable[[], str]) -> tuple[str, str]:
    """The place as messages call it, and what to type."""
    key = source.rpartition(".")[2]
    return (source, f"edit {site_file()}") if source.startswith("site.") else (key, f"type another {key}")


def _of_time(run: Run, partition: Partition) -> Iterator[tuple[str, str]]:
    limit = partition.limit_minutes
    if math.ceil(run.segment_minutes) > limit:
        ends = f"{_called(partition)} ends jobs after {limit:.10g} minutes (sinfo)"
        key = "segment_minutes" if run.least_minutes is None else "segment_minutes.at_most"
        todo = f"type {key.rpartition('.')[2]}: {math.floor(limit)} or less"
        yield key, f"found {run.segment_minutes:.10g}, but {ends}; {todo}"


def _of_size(run: Run, partition: Partition) -> Iterator[tuple[str, str]]:
    nodes = run.nodes or 1
    if nodes > partition.node_count:
        has = f"{_called(partition)} has {_some(partition.node_count, 'node')} (sinfo)"
        yield "nodes", f"found {run.nodes}, but {has}; type nodes: {partition.node_count} or less"
    # With `nodes: null`, Slurm may put each task on a node of its own.
    tasks = math.ceil(run.tasks / run.nodes) if run.nodes else 1
    if run.threads * tasks > partition.cpus:
        each = f" for each of {tasks} tasks on a node" if tasks > 1 else ""
        fits = partition.cpus // tasks
        todo = (
            f"type threads: {fits} or less" if fits else f"type nodes: {math.ceil(run.tasks / partition.cpus)} or more"
        )
        has = f"no node of {_called(partition)} has more than {_some(partition.cpus, 'core')} (sinfo)"
        yield "threads", f"found {run.threads}{each}, but {has}; {todo}"
    elif run.threads * run.tasks > (cores := partition.all_cpus):
        has = f"{_called(partition)} has {cores} cores in all (sinfo)"
        yield (
            "tasks",
            f"found {run.tasks} of {run.threads} threads, but {has}; type tasks: {cores // run.threads} or less",
        )
    if run.mem_mb > partition.memory_mb:
        has = f"no node of {_called(partition)} has more than {partition.memory_mb} MB (sinfo)"
        yield "mem_mb", f"found {run.mem_mb}, but {has}; type mem_mb: {partition.memory_mb} or less"


def _of_gpus(
    run: Run, request: Request, partition: Partition, site_file: Callable[[], str]
) -> Iterator[tuple[str, str]]:
    if not run.gpus:
        return
    types = partition.gpu_types
    wanted = request.gpu_type
    if not types:
        yield "gpus", f"found {run.gpus}, but no node of {_called(partition)} has a GPU (sinfo); type gpus: 0"
    elif wanted is not None and wanted not in types:
        where, todo = _source(request.sources["gpu_type"], site_file)
        named = listed([name for name in types if name] or ["without a type"])
        todo = todo if where.startswith("site.") else f"type gpu_type: {types[0] or 'null'}"
        yield where, f"found '{wanted}', but the GPUs of {_called(partition)} are {named} (sinfo); {todo}"
    elif run.gpus > (most := partition.gpus(wanted) * (run.nodes or run.tasks)):
        nodes = run.nodes or run.tasks
        where = (
            f"no node of {_called(partition)} has" if nodes == 1 else f"{nodes} nodes of {_called(partition)} have no"
        )
        has = f"{where} more than {most}{f' of type {wanted}' if wanted else ''}"
        yield "gpus", f"found {run.gpus}, but {has} (sinfo); type gpus: {most} or less"


def _called(partition: Partition) -> str:
    return f"partition {partition.name}" if partition.name else "the cluster"


def _some(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
