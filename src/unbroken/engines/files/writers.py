"""Find out if a program's processes run, and which files they have open for writing, on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unbroken.program import guard
from unbroken.program.guard import marked

# A process that was there so long is no helper that was started for a moment.
LONG_SECONDS = 1.0
# A file that was closed while one ended is complete if the program still works so much later.
DYING_SECONDS = 2.0
# The same, where another process is likely to have written the file, but none has completed one of this name before.
FIRST_SECONDS = 1.0
# A look at all processes of a machine takes milliseconds.  It is taken so often, and more often while none is known:
# processes that lost their parent, and those that other threads than the first one started, are found by it alone.
SCAN_SECONDS, FIRST_SCAN_SECONDS = 2.0, 0.5
_EXITING = 0x4  # of `flags` [linux/sched.h, PF_EXITING], set before a process that ends closes its files


@dataclass
class _Process:
    """Hold a process's start, in seconds since the boot, and the bytes it had written when it was last seen."""

    began: float
    written: int | None  # None if that cannot be read
    before: int | None  # when all events had been read

    def has_written(self) -> bool:
        return self.written is None or self.written > 0

    def grown(self) -> int:
        return 0 if self.written is None or self.before is None else self.written - self.before


class ProgramLife:
    """Detect if the program with `mark` in its environment runs: the end of a process closes files as it does.

    Events of files come from a queue.  The end of a process concerns the files whose events were read before that queue
    was found empty (`all_is_read`): the kernel reports what an end has closed before it shows the process as gone.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._working: dict[int, _Process] = {}
        self._ending: dict[int, _Process] = {}  # may still close files
        self._ended: list[_Process] = []  # what they closed may not have been read
        self._was_seen = False
        self._scanned = -float("inf")
        self._looked = 0.0

    def look(self) -> None:
        """Take note of what its processes have started and written, and which have ended.

        The writer of a file must be known before its end closes it.
        """
        now = self._looked = time.monotonic()
        long_since = time.clock_gettime(time.CLOCK_BOOTTIME) - LONG_SECONDS
        for pid in [pid for pid, process in self._working.items() if _working_since(pid) != process.began]:
            process = self._working.pop(pid)
            if process.began <= long_since:
                self._ending[pid] = process
        self._ended += [self._ending.pop(pid) for pid in list(self._ending) if _has_closed_all(pid)]
        for pid, process in self._working.items():
            process.written = _written(pid)
        fresh = {child for pid in self._working for child in _children(pid)} - self._working.keys()
        self._know(pid for pid in fresh if os.fsencode(self._mark) in _words(pid, "environ"))
        if now - self._scanned >= (SCAN_SECONDS if self._working else FIRST_SCAN_SECONDS):
            self._scanned = now
            self._know(pid for pid, _ in marked(self._mark))

    def _know(self, pids: Iterable[int]) -> None:
        for pid in pids:
            is_new = pid not in self._working and os.fsencode(guard.__file__) not in _words(pid, "cmdline")
            if is_new and (began := _working_since(pid)) is not None:
                written = _written(pid)
                self._working[pid], self._was_seen = _Process(began, written, written), True

    def all_is_read(self, since: float) -> None:
        """Forget the ends that were seen before `since`, when the queue of events was asked and had nothing more."""
        if self._looked < since:
            self._ended.clear()
            for process in self._working.values():
                process.before = process.written

    def is_alive(self) -> bool:
        """Return False if none of its processes is left; True where none was ever seen: it may hide its environment."""
        self.look()
        return not self._was_seen or bool(self._working)

    def doubt_seconds(self, size: int, *, is_first: bool) -> float:
        """Return how long a program must work on until a file of `size` bytes, whose event was just read, is complete.

        Zero unless the end of a process may have closed it.  If all that have ended had never written, and one that
        works has written so much, that one is likely to have written it.  It is certain enough at once only if a file
        of this name was completed before: a program may crash in its first write.  Call it after a look.
        """
        ends = [*self._ending.values(), *self._ended]
        most = max((process.grown() for process in self._working.values()), default=0)
        if not ends:
            return 0.0
        if most < size or any(process.has_written() for process in ends):
            return DYING_SECONDS
        return FIRST_SECONDS if is_first else 0.0

    def written(self, paths: Sequence[Path]) -> set[Path]:
        """Return those of these files that its processes have open for writing, the youngest of them too."""
        self._scanned = -float("inf")
        self.look()
        return written_by(self._working, paths)


def _working_since(pid: int) -> float | None:
    """Return when a process began, in seconds since the boot; None for one that is gone, or ends just now.

    By `state`, `flags` and `starttime` [proc(5), /proc/pid/stat].
    """
    fields = _status(pid)
    is_ending = not fields or fields[0] in ("Z", "X") or int(fields[6]) & _EXITING
    return None if is_ending else int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _has_closed_all(pid: int) -> bool:
    """Return True for a process that is gone, or waits to be asked for its exit code."""
    fields = _status(pid)
    return not fields or fields[0] in ("Z", "X")


def _status(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _written(pid: int) -> int | None:
    """Return how many bytes a process has written to files and pipes, by `wchar` [proc(5), /proc/pid/io]."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "wchar":
                return int(value)
    return None


def _children(pid: int) -> list[int]:
    """Return the processes that a process has started [proc(5), /proc/pid/task/tid/children]."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # gone, or a kernel without the file
        return []


def _words(pid: int, name: str) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
    except OSError:
        return []


# --- open files ---


def written_by(pids: Iterable[int], paths: Sequence[Path]) -> set[Path]:
    """Return those of these files that one of the processes has open for writing."""
    opened = {identity for _, identity in _open_files(pids)}
    return {path for path in paths if _identity(path) in opened}


def open_for_writing(mark: str) -> set[Path]:
    """Return the files that processes with `mark` in their environment have opened for writing.

    Not those that this process has handed on to them, such as a log of the job.
    """
    handed_on = {_identity(each) for each in (0, 1, 2)}
    return {path for path, identity in _open_files(pids_with(mark)) if identity not in handed_on}


def pids_with(mark: str) -> Iterator[int]:
    """Yield the processes of this machine with `mark` (`NAME=value`) in their environment."""
    return (pid for pid, _ in marked(mark))


def _identity(path: Path | int) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return -1, -1
    return found.st_dev, found.st_ino


def _open_files(pids: Iterable[int]) -> Iterator[tuple[Path, tuple[int, int]]]:
    for pid in pids:
        with suppress(OSError):  # it has left
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    link = Path(f"/proc/{pid}/fd/{name}")
                    if _is_for_writing(pid, name):
                        yield link.readlink(), _identity(link)


def _is_for_writing(pid: int, descriptor: str) -> bool:
    """Read `flags`, in octal [proc(5), /proc/pid/fdinfo]."""
    text = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text()
    flags = next((int(line.split()[1], 8) for line in text.splitlines() if line.startswith("flags:")), 0)
    return flags & os.O_ACCMODE != os.O_RDONLY
