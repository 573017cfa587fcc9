"""Describe this machine, for every passport, because equal results need equal hardware."""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Host:
    """The machine under a segment; `gpu` and `gpu_driver` are empty where there is none."""

    name: str
    system: str
    cpu: str
    cpu_count: int
    gpu: str
    gpu_driver: str

    def to_json(self) -> dict[str, object]:
        return dict(vars(self))


@functools.cache
def this_host() -> Host:
    """Return the machine that this process runs on, asked once."""
    gpu, driver = _nvidia()
    return Host(platform.node(), platform.platform(), _cpu_model(), _cpu_count(), gpu, driver)


def _cpu_count() -> int:
    """Return the number of CPUs that this process may use, or of all where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def boot_id() -> str:
    """Return an id that changes with every boot, so that a pid from before is not mistaken for a live one."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def process_start(pid: int) -> str:
    """Return when the process started, in kernel ticks since boot (field 22 of proc(5) stat); empty if it is gone."""
    fields = _stat(pid)
    is_gone = not fields or fields[0] in {"Z", "X"}
    return "" if is_gone else fields[19]


def own_start_unix() -> float:
    """Return when this process was started, in Unix seconds; to a hundredth, as the kernel counts."""
    ticks = process_start(os.getpid())
    if not ticks:
        return time.time()
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def is_stopped(pid: int) -> bool:
    """Return True while a signal, or a debugger, keeps the process from running."""
    return _stat(pid)[:1] in (["T"], ["t"])


def is_hidden(pid: int) -> bool:
    """Return True if there is such a process of another user that /proc does not show (mounted with hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not _stat(pid)
    except OSError:
        return False
    return False


def _stat(pid: int) -> list[str]:
    """Return fields 3 and following of proc(5) stat; none if there is no such process, or it is not shown."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


@functools.cache
def pid_namespace() -> str:
    """Return the PID namespace: process ids mean the same only inside one (containers have their own)."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _nvidia() -> tuple[str, str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return "", _driver_of_kernel()
    rows = [line.split(", ") for line in answer.splitlines() if ", " in line]
    return "; ".join(row[0] for row in rows), rows[0][1] if rows else ""


def _driver_of_kernel() -> str:
    """Return the version of NVIDIA's or AMD's module, where no program says it; empty if there is none."""
    return nvidia_version(_text("/proc/driver/nvidia/version")) or _text("/sys/module/amdgpu/version").strip()


def nvidia_version(text: str) -> str:
    """Return the driver's version from the text of /proc/driver/nvidia/version; empty if it has none."""
    found = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)\s", text)
    return found[1] if found else ""


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
