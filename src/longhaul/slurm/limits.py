"""What a cluster cannot do for a run, said before anything is queued: limits as sinfo tells them."""

from __future__ import annotations

import math
import os
import pwd
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from longhaul.messages import listed, near
from longhaul.run import Run
from longhaul.slurm.commands import ask
from longhaul.slurm.partitions import Partition, together
from longhaul.slurm.site import Request


@dataclass(frozen=True)
class Cluster:
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
        user = pwd.getpwuid(os.getuid()).pw_name
        answer = ask("sacctmgr", "--noheader", "--parsable2", "show", "assoc", f"user={user}", "format=account")
        return list(dict.fromkeys((answer or "").split()))


Asked = tuple[Run, Request]


def limit_mistakes(asked: Iterable[Asked], cluster: Cluster, site_file: Callable[[], str]) -> list[str]:
    """A line for each mistake, also where many runs share it; `site_file` is what to edit for a mistake of the site."""
    runs: dict[tuple[str, str], list[str]] = {}
    for run, request in asked:
        for key, text in _mistakes(run, request, cluster, site_file):
            runs.setdefault((key, text), []).append(run.name)
    return [f"{_where(key, names)}: {text}" for (key, text), names in runs.items()]


def absences(asked: Iterable[Asked], cluster: Cluster) -> list[str]:
    """A line for each partition in use in which no job can start at present."""
    used = {request.partition: cluster.of(request) for _, request in asked}
    away = [partition for partition in used.values() if partition is not None and not partition.is_there]
    return [f"{_called(partition)} is down or all its nodes are (sinfo); its jobs will wait" for partition in away]


def _where(key: str, names: list[str]) -> str:
    """`site.account`, `runs.a.threads`, `runs.a.threads (and 3 more runs)`."""
    if key.startswith("site."):
        return key
    more = f" (and {len(names) - 1} more run{'s' if len(names) > 2 else ''})" if len(names) > 1 else ""
    return f"runs.{names[0]}.{key}{more}"


def _mistakes(run: Run, request: Request, cluster: Cluster, site_file: Callable[[], str]) -> Iterator[tuple[str, str]]:
    accounts = cluster.accounts if request.account else []
    yield from _of_names("account", request, accounts, "your accounts (sacctmgr) are {}", site_file)
    names = list(cluster.partitions)
    yield from _of_names("partition", request, names, "the partitions of this cluster (sinfo) are {}", site_file)
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
        # Slurm writes accounts in small letters.
        if name and name not in known and (key != "account" or name.lower() not in known):
            where, todo = _source(request.sources[key], site_file)
            guess = near(name, known)
            hint = f"did you mean `{guess}`?" if guess else todo
            if guess and where.startswith("site."):
                hint = f"{hint} {todo}"
            yield where, f"found '{name}', but {are.format(listed(known).replace(' or ', ' and '))}; {hint}"


def _source(source: str, site_file: Callable[[], str]) -> tuple[str, str]:
    """The place as messages call it, and what to type."""
    key = source.rpartition(".")[2]
    return (source, f"edit {site_file()}") if source.startswith("site.") else (key, f"type another {key}")


def _of_time(run: Run, partition: Partition) -> Iterator[tuple[str, str]]:
    limit = partition.limit_minutes
    if math.ceil(run.segment_minutes) > limit:
        ends = f"{_called(partition)} ends jobs after {limit:.10g} minutes (sinfo)"
        todo = f"type segment_minutes: {math.floor(limit)} or less"
        yield "segment_minutes", f"found {run.segment_minutes:.10g}, but {ends}; {todo}"


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
