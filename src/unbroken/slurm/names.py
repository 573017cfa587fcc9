"""The names that a cluster knows beside its partitions: accounts and QOS; and the features in a constraint.

A function that asks Slurm gives None where Slurm does not answer, so that nothing is refused by it.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from unbroken.slurm.client import records, table

# What stands between the names of features, and how many nodes are to have one [man sbatch: --constraint].
_BETWEEN = re.compile(r"[\s&|,()\[\]]+")
_COUNT = re.compile(r"\*\d+")


def accounts() -> list[str] | None:
    """Return the accounts of this user."""
    user = pwd.getpwuid(os.getuid()).pw_name
    return _names(table("sacctmgr", "show", "assoc", f"user={user}", columns=("account",)))


def qos_names() -> list[str] | None:
    """Return every QOS of the cluster."""
    return _names(table("sacctmgr", "show", "qos", columns=("name",)))


@dataclass(frozen=True)
class Qos:
    """Which QOS a partition takes: those `allowed`, None for all, but for those `denied`."""

    allowed: tuple[str, ...] | None
    denied: tuple[str, ...] = ()

    def allows(self, qos: str) -> bool:
        """Return True if the partition takes a QOS; Slurm compares their names in any letters."""
        is_allowed = self.allowed is None or _has(self.allowed, qos)
        return is_allowed and not _has(self.denied, qos)


def qos_by_partition() -> dict[str, Qos] | None:
    """Return which QOS each partition takes."""
    found = records("--all", "partition")
    return None if found is None else qos_in(found)


def qos_in(partitions: Iterable[Mapping[str, str]]) -> dict[str, Qos]:
    """Parse what `scontrol show partition` prints of each."""
    found = {}
    for words in partitions:
        if "PartitionName" in words:
            allowed = words.get("AllowQos", "ALL")
            denied = tuple(filter(None, words.get("DenyQos", "").split(",")))
            found[words["PartitionName"]] = Qos(None if allowed == "ALL" else tuple(allowed.split(",")), denied)
    return found


def features_in(constraint: str) -> list[str]:
    """Return the names in `[rack1*2&rack2*4]`, `intel&(gpu|big)`, ..."""
    names = _BETWEEN.split(_COUNT.sub(" ", constraint))
    return list(dict.fromkeys(filter(None, names)))


def is_choice(constraint: str) -> bool:
    """Return True if a node need not have all the features that it names."""
    return "|" in constraint or "[" in constraint or bool(_COUNT.search(constraint))


def _has(names: tuple[str, ...], name: str) -> bool:
    return name.casefold() in {each.casefold() for each in names}


def _names(rows: list[tuple[str, ...]] | None) -> list[str] | None:
    return None if rows is None else list(dict.fromkeys(name for (name,) in rows if name))
