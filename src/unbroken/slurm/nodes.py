"""How many nodes a partition has, and on how many of them a run has not been tried."""

from __future__ import annotations

import os
from collections.abc import Collection

from unbroken.slurm.tables import table


def numbers_of(partition: str, what: str) -> list[int]:
    """A column of sinfo for a partition; empty if there is none of that name or Slurm does not say."""
    rows = table("sinfo", "--exact", f"--partition={partition}", columns=(what,)) if partition else None
    return [int(value) for (value,) in rows or [] if value.isdecimal()]


def own_partition() -> str:
    """The partition of the job around this process; empty outside Slurm."""
    return os.environ.get("SLURM_JOB_PARTITION", "")


def default_partition() -> str:
    """Where jobs go that name none; empty if Slurm does not say."""
    rows = table("sinfo", columns=("%P",)) or []
    return next((name.removesuffix("*") for (name,) in rows if name.endswith("*")), "")


def spare_nodes(partition: str, needed: int) -> int:
    """How many nodes a partition has beside the `needed` ones of a job; 0 if Slurm does not say."""
    return max(0, sum(numbers_of(partition, "%D")) - needed)


def own_spare_nodes() -> int:
    """The same for the job around this process."""
    return spare_nodes(own_partition(), int(os.environ.get("SLURM_JOB_NUM_NODES") or 1))


def untried(spare: int, tried: Collection[str]) -> int:
    """On how many nodes a job could run that has `spare` ones, and shall not run on those where it was tried.

    0 where no node is known, as outside Slurm.
    """
    nodes = {node for node in tried if node}
    return max(0, spare - len(nodes) + 1) if nodes else 0
