"""Ask what the cluster offers: its partitions with their nodes, as sinfo prints them, and names of accounts and QOS.

Except in `ask_partitions`, what Slurm does not say is empty, so that it refuses nothing.
"""

from __future__ import annotations

import math
import os
import pwd
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from unbroken.errors import ConfigError
from unbroken.slurm.client import has_command, table

# Partition, its time limit, then of each kind of node: how many, CPUs, MB, GRES [man sinfo].
COLUMNS = ("%P", "%l", "%D", "%c", "%m", "%G")
_GPU = re.compile(r"(?:^|,)gpu(?::(?P<type>[A-Za-z_][^:,(]*))?(?::(?P<count>\d+))?(?=[,:]|$)")


@dataclass(frozen=True)
class NodeKind:
    """Nodes of a partition that are alike; `gpus` by type, which is empty where the cluster names none."""

    count: int
    cpus: int
    memory_mb: int
    gpus: Mapping[str, int]

    def gpu_count(self, gpu_type: str | None = None) -> int:
        """Return the GPUs of one node, all or those of a type."""
        return sum(count for name, count in self.gpus.items() if gpu_type in (None, name))


@dataclass(frozen=True)
class Partition:
    """One partition, or several taken together; `limit_minutes` is infinite where there is none."""

    name: str
    is_default: bool
    limit_minutes: float
    kinds: tuple[NodeKind, ...]

    @property
    def node_count(self) -> int:
        """Return how many nodes it has."""
        return sum(kind.count for kind in self.kinds)

    @property
    def cpus(self) -> int:
        """Return the CPUs of the node that has most."""
        return max((kind.cpus for kind in self.kinds), default=0)

    @property
    def all_cpus(self) -> int:
        """Return the CPUs of all nodes."""
        return sum(kind.count * kind.cpus for kind in self.kinds)

    @property
    def memory_mb(self) -> int:
        """Return the memory of the node that has most."""
        return max((kind.memory_mb for kind in self.kinds), default=0)

    @property
    def gpu_types(self) -> list[str]:
        """Return the types of its GPUs."""
        return sorted({name for kind in self.kinds for name in kind.gpus})

    def gpus(self, gpu_type: str | None = None) -> int:
        """Return the GPUs of the node that has most, all or those of a type."""
        return max((kind.gpu_count(gpu_type) for kind in self.kinds), default=0)


def ask_partitions() -> dict[str, Partition]:
    """Return all partitions by name, also hidden ones; raise ConfigError if Slurm is not here or does not answer."""
    if not has_command("sinfo"):
        here = "snakemake --profile slurm belongs on a login node of the cluster"
        raise ConfigError([f"sinfo: not found here; {here}; type snakemake to run on this machine"])
    rows = table("sinfo", "--all", "--exact", columns=COLUMNS)
    if rows is None:
        todo = "see what `scontrol ping` says, then type the same command again"
        raise ConfigError([f"sinfo: Slurm's controller does not answer, so nothing can be queued; {todo}"])
    return partitions_in(rows)


def ask_partition(names: str) -> Partition:
    """Return one partition, or several whose names have a comma in between; the default one if there is no name.

    Without nodes if Slurm does not say.
    """
    rows = table("sinfo", "--exact", *([f"--partition={names}"] if names else []), columns=COLUMNS)
    found = partitions_in(rows or []).values()
    return together((partition for partition in found if names or partition.is_default), names)


def own_partition() -> str:
    """Return the partition of the job around this process; empty outside Slurm."""
    return os.environ.get("SLURM_JOB_PARTITION", "")


def spare_nodes(partition: str, needed: int) -> int:
    """Return how many nodes a partition has in addition to the `needed` ones of a job; 0 if Slurm does not say."""
    return max(0, ask_partition(partition).node_count - needed)


def own_spare_nodes() -> int:
    """Return how many nodes the partition of the job around this process has in addition to its own; 0 without one."""
    partition = own_partition()
    return spare_nodes(partition, int(os.environ.get("SLURM_JOB_NUM_NODES") or 1)) if partition else 0


def partitions_in(rows: Iterable[tuple[str, ...]]) -> dict[str, Partition]:
    """Return the partitions in the order of sinfo's rows; each row is one kind of node of one partition."""
    found: dict[str, Partition] = {}
    for called, limit, *kind in rows:
        name = called.removesuffix("*")
        before = found[name].kinds if name in found else ()
        kinds = (*before, _kind(kind)) if kind[0] != "0" else before
        found[name] = Partition(name, called.endswith("*"), minutes_in(limit), kinds)
    return found


def together(partitions: Iterable[Partition], name: str) -> Partition:
    """Return several partitions as one: what fits none of them does not fit it."""
    known = list(partitions)
    return Partition(
        name,
        any(partition.is_default for partition in known),
        max((partition.limit_minutes for partition in known), default=0),
        tuple(kind for partition in known for kind in partition.kinds),
    )


def minutes_in(text: str) -> float:
    """Read `infinite`, `30:00` (half an hour), `8:00:00`, `2-00:00:00`; infinite too where sinfo knows none (`n/a`)."""
    match = re.fullmatch(r"(?:(\d+)-)?((?:\d+:)*\d+)", text)
    if match is None:
        return math.inf
    parts = [int(part) for part in match[2].split(":")]
    if match[1] is not None:  # days, then hours first
        hours, minutes, seconds = [*parts, 0, 0][:3]
        return int(match[1]) * 1440 + hours * 60 + minutes + seconds / 60
    hours, minutes, seconds = [0, 0, 0, *parts][-3:] if len(parts) > 1 else (0, parts[0], 0)
    return hours * 60 + minutes + seconds / 60


def _kind(row: Sequence[str]) -> NodeKind:
    count, cpus, memory, gres = row
    return NodeKind(_number(count), _number(cpus), _number(memory), _gpus(gres))


def _number(text: str) -> int:
    """Read `64`, or `64+` where nodes differ."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else 0


def _gpus(gres: str) -> dict[str, int]:
    """Read `gpu:a100:4(S:0-1),gpu:v100:2`, `gpu:8`, `(null)`."""
    found: dict[str, int] = {}
    for match in _GPU.finditer(re.sub(r"\([^)]*\)", "", gres)):
        name = match["type"] or ""
        found[name] = found.get(name, 0) + int(match["count"] or 1)
    return found


# --- names ---


def accounts() -> list[str]:
    """Return the accounts of this user."""
    return _names("assoc", f"user={pwd.getpwuid(os.getuid()).pw_name}", column="account")


def qos_names() -> list[str]:
    """Return every QOS of the cluster."""
    return _names("qos", column="name")


def _names(*what: str, column: str) -> list[str]:
    rows = table("sacctmgr", "show", *what, columns=(column,))
    return list(dict.fromkeys(name for (name,) in rows or [] if name))
