"""Read the memory and the CPU time of processes from the kernel (proc(5))."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PAGE_KB = 1024
_UTIME, _STIME = 11, 12  # of the fields after the name


@dataclass(frozen=True)
class Vitals:
    """Hold the memory and the CPU time of several processes together; `ticks` grow only while they compute."""

    memory_bytes: int = 0
    ticks: int = 0


def vitals(pids: Iterable[int]) -> Vitals:
    """Return the sums over these processes; a process that has ended counts as zero."""
    each = list(pids)
    return Vitals(sum(map(_resident_bytes, each)), sum(map(_ticks, each)))


def _resident_bytes(pid: int) -> int:
    """Return the bytes of VmRSS and VmSwap."""
    lines = _read(pid, "status").splitlines()
    return sum(int(line.split()[1]) * _PAGE_KB for line in lines if line.startswith(("VmRSS:", "VmSwap:")))


def _ticks(pid: int) -> int:
    """Return the CPU time in clock ticks; the program's name, in brackets, may hold blanks and brackets."""
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return int(fields[_UTIME]) + int(fields[_STIME]) if len(fields) > _STIME else 0


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""
