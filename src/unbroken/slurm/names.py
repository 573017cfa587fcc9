"""The names that a cluster knows beside its partitions: accounts, QOS, and the features of its nodes.

Each function asks one question, and gives None where Slurm does not answer, so that nothing is refused by it.
"""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import dataclass

from unbroken.slurm.commands import ask

# What stands between the names of features, and how many nodes are to have one [man sbatch: --constraint].
_BETWEEN = re.compile(r"[\s&|,()\[\]]+")
_COUNT = re.compile(r"\*\d+")


def accounts() -> list[str] | None:
    """The accounts of this user."""
    user = pwd.getpwuid(os.getuid()).pw_name
    return _lines(ask("sacctmgr", "--noheader", "--parsable2", "show", "assoc", f"user={user}", "format=account"))


def qos_names() -> list[str] | None:
    """Every QOS of the cluster."""
    return _lines(ask("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name"))


@dataclass(frozen=True)
class Doors:
    """Which QOS a partition lets in: those named, None for all; and which it keeps out."""

    allowed: tuple[str, ...] | None
    denied: tuple[str, ...] = ()

    def lets_in(self, qos: str) -> bool:
        """Names of QOS count in any letters."""
        is_named = self.allowed is None or _has(self.allowed, qos)
        return is_named and not _has(self.denied, qos)


def doors() -> dict[str, Doors] | None:
    """What each partition says of QOS."""
    text = ask("scontrol", "--all", "--oneliner", "show", "partition")
    return None if text is None else parse_doors(text)


def parse_doors(text: str) -> dict[str, Doors]:
    """From the lines of `scontrol --oneliner show partition`."""
    found = {}
    for line in text.splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "PartitionName" in words:
            allowed = words.get("AllowQos", "ALL")
            denied = tuple(filter(None, words.get("DenyQos", "").split(",")))
            found[words["PartitionName"]] = Doors(None if allowed == "ALL" else tuple(allowed.split(",")), denied)
    return found


def features() -> dict[str, set[str]] | None:
    """The features that nodes have, by partition."""
    text = ask("sinfo", "--noheader", "--all", "--format=%P|%f")
    return None if text is None else parse_features(text)


def parse_features(text: str) -> dict[str, set[str]]:
    """From lines such as `gpu*|fast,ib` and `short|(null)`."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        partition, _, names = line.partition("|")
        known = found.setdefault(partition.strip().removesuffix("*"), set())
        known.update(name for name in names.strip().split(",") if name not in {"", "(null)"})
    return found


def features_in(constraint: str) -> list[str]:
    """The names in `[rack1*2&rack2*4]`, `intel&(gpu|big)`, ..."""
    names = _BETWEEN.split(_COUNT.sub(" ", constraint))
    return list(dict.fromkeys(filter(None, names)))


def is_choice(constraint: str) -> bool:
    """True if a node need not have all the features that it names."""
    return "|" in constraint or "[" in constraint or bool(_COUNT.search(constraint))


def _has(names: tuple[str, ...], name: str) -> bool:
    return name.casefold() in {each.casefold() for each in names}


def _lines(text: str | None) -> list[str] | None:
    return None if text is None else list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
