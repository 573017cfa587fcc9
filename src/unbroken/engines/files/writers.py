"""Finds out whether a program's processes work, and which files they have open for writing, on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from unbroken.program import guard
from unbroken.program.guard import marked

# A process that was there so long is no helper that was started for a moment.
LONG_SECONDS = 1.0
# Its end says for so long that the program may be dying.
DYING_SECONDS = 2.0
# A look at all processes of a machine takes milliseconds.  It is taken so often, and more often while none is known:
# processes that lost their parent, and those that other threads than the first one started, are found by it alone.
SCAN_SECONDS, FIRST_SCAN_SECONDS = 2.0, 0.5
_EXITING = 0x4  # of `flags` [linux/sched.h, PF_EXITING], set before a process that ends closes its files


class ProgramLife:
    """Says whether the program with `mark` in its environment works: the end of a process closes files as it does."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._begun: dict[int, float] = {}  # when each of its processes began, in seconds since the boot
        self._scanned = -float("inf")
        self._dying_until = 0.0
        self._was_seen = False

    def look(self) -> None:
        """Take note of what its processes have started, and which have ended.

        The writer of a file must be known before its end closes it.
        """
        now, since_boot = time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)
        dead = [pid for pid, began in self._begun.items() if _working_since(pid) != began]
        if min((self._begun.pop(pid) for pid in dead), default=since_boot) <= since_boot - LONG_SECONDS:
            self._dying_until = now + DYING_SECONDS
        fresh = {child for pid in self._begun for child in _children(pid)} - self._begun.keys()
        self._know(pid for pid in fresh if _is_marked(pid, self._mark))

    def _know(self, pids: Iterable[int]) -> None:
        found = ((pid, _working_since(pid)) for pid in pids if not _is_guard(pid))
        self._begun |= {pid: began for pid, began in found if began is not None}
        self._was_seen |= bool(self._begun)

    def is_alive(self) -> bool:
        """Return False if none of its processes is left, or one that worked for long has just ended.

        True where none was ever seen: it may have cleared its environment.
        """
        self.look()
        now = time.monotonic()
        if now - self._scanned >= (SCAN_SECONDS if self._begun else FIRST_SCAN_SECONDS):
            self._scanned = now
            self._know(pid for pid, _ in marked(self._mark))
        return not self._was_seen or (bool(self._begun) and now >= self._dying_until)


def _working_since(pid: int) -> float | None:
    """Return when a process began, in seconds since the boot; None for one that is gone, or ends just now.

    By `state`, `flags` and `starttime` [proc(5), /proc/pid/stat].
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    is_ending = fields[0] in ("Z", "X") or int(fields[6]) & _EXITING
    return None if is_ending else int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    """Return the processes that a process has started [proc(5), /proc/pid/task/tid/children]."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # gone, or a kernel without the file
        return []


def _is_marked(pid: int, mark: str) -> bool:
    try:
        return os.fsencode(mark) in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _is_guard(pid: int) -> bool:
    try:
        return os.fsencode(guard.__file__) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def are_written(paths: Sequence[Path], mark: str) -> bool:
    """Return True if a process with `mark` (`NAME=value`) in its environment has one of the files open for writing."""
    wanted = {_identity(found) for path in paths if (found := _stat(path)) is not None}
    return any(_identity(found) in wanted for _, found in _open_files(mark))


def open_for_writing(mark: str) -> set[Path]:
    """Return the files that processes with `mark` in their environment have opened for writing.

    Not those that this process has handed on to them, such as a log of the job.
    """
    handed_on = {_identity(found) for each in (0, 1, 2) if (found := _stat(each)) is not None}
    return {path for path, found in _open_files(mark) if _identity(found) not in handed_on}


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _stat(path: Path | int) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _open_files(mark: str) -> Iterator[tuple[Path, os.stat_result]]:
    for pid, _ in marked(mark):
        with suppress(OSError):  # it has left
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    link = f"/proc/{pid}/fd/{name}"
                    if _is_for_writing(pid, name):
                        yield Path(os.readlink(link)), os.stat(link)


def _is_for_writing(pid: int, descriptor: str) -> bool:
    """Read `flags`, in octal [proc(5), /proc/pid/fdinfo]."""
    text = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text()
    flags = next((int(line.split()[1], 8) for line in text.splitlines() if line.startswith("flags:")), 0)
    return flags & os.O_ACCMODE != os.O_RDONLY
