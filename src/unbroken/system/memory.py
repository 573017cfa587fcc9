"""Memory as the kernel counts it: whether it killed processes that were out of it, and how much is left."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
_CACHED = ("inactive_file", "total_inactive_file")


@dataclass(frozen=True)
class Kills:
    """Count the out-of-memory kills of the kernel in this control group; `is_job` if only its job lives there.

    Elsewhere (a login session, a container, a Slurm without cgroups) neighbours count too.
    """

    count: int
    is_job: bool


def out_of_memory_kills(slurm_job: str = "") -> Kills:
    """Return what the kernel has counted so far for this control group and those inside it; 0 without a counter.

    Version 2: `memory.events`; version 1: `memory.oom_control` [Linux, admin-guide/cgroup-v2, cgroup-v1/memory].  Slurm
    makes a group `job_<number>` for each job, and groups for its steps inside it [man cgroup.conf].
    """
    for path in _counters():
        try:
            pairs = (line.split() for line in path.read_text().splitlines())
            count = next((int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] == "oom_kill"), 0)
        except (OSError, ValueError):
            continue
        return Kills(count, bool(slurm_job) and f"job_{slurm_job}" in path.parts)
    return Kills(0, is_job=False)


def _counters() -> list[Path]:
    try:
        lines = OWN_GROUPS.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            found.append(CGROUPS / "memory" / path.lstrip("/") / "memory.oom_control")
        elif number == "0":
            found.append(CGROUPS / path.lstrip("/") / "memory.events")
    return found


def available_bytes() -> int:
    """Return what a process may still take: of the machine, or of its control group where that gives less."""
    return min([_machine_bytes(), *_group_bytes()])


def _machine_bytes() -> int:
    """Return `MemAvailable` [proc_meminfo(5)]; endless where the kernel does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return sys.maxsize
    rows = (line.split() for line in lines)
    return next((int(row[1]) * 1024 for row in rows if row[0] == "MemAvailable:"), sys.maxsize)


def _group_bytes() -> list[int]:
    """Return what each control group with a limit leaves; cached files count as free, because the kernel drops them."""
    found = []
    # A limit of the job stands above the group of one of its processes.
    for folder in {folder for path in _counters() for folder in path.parents if folder.is_relative_to(CGROUPS)}:
        names = ("memory.max", "memory.current") if (folder / "memory.max").exists() else _VERSION_1
        try:
            limit, used = ((folder / name).read_text().strip() for name in names)
            pairs = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
            cached = next((int(pair[1]) for pair in pairs if pair[0] in _CACHED), 0)
            found.append(int(limit) - int(used) + cached)
        except (OSError, ValueError):  # no such group here, or "max": no limit
            continue
    return found
