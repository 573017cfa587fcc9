"""Whether a process of a program has a file open for writing, on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from unbroken.program.guard import marked


def are_written(paths: Sequence[Path], mark: str) -> bool:
    """True if a process with `mark` (`NAME=value`) in its environment has one of the files open for writing."""
    wanted = set()
    for path in paths:
        with suppress(OSError):
            state = path.stat()
            wanted.add((state.st_dev, state.st_ino))
    return any(_writes(pid, wanted) for pid, _ in marked(mark))


def _writes(pid: int, wanted: set[tuple[int, int]]) -> bool:
    with suppress(OSError):  # it has left
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                state = os.stat(f"/proc/{pid}/fd/{name}")
                if (state.st_dev, state.st_ino) in wanted and _is_for_writing(pid, name):
                    return True
    return False


def _is_for_writing(pid: int, descriptor: str) -> bool:
    """By `flags`, in octal [proc(5), /proc/pid/fdinfo]."""
    with open(f"/proc/{pid}/fdinfo/{descriptor}") as file:
        flags = next((int(line.split()[1], 8) for line in file if line.startswith("flags:")), 0)
    return flags & os.O_ACCMODE != os.O_RDONLY
