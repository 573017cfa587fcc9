"""The history of a run: one JSON line per attempt, appended by the owner of the lease."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbroken.store.formats import Format
from unbroken.store.segment_end import SegmentEnd
from unbroken.system import fs

FORMAT = Format(2)  # of each line
# What a program that a KILL ended leaves, as its parent sees it and as a shell, or srun, says it.
KILLED_CODES = frozenset({-signal.SIGKILL, 128 + signal.SIGKILL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(SegmentEnd):
    """Say how one job's try at a segment ended, and which, where and when it was.  Times in seconds."""

    token: int
    segment: int
    driver_attempt: int = 1
    started_utc: str
    ended_utc: str
    work_seconds: float = 0.0
    saves: int = 0
    save_seconds: float = 0.0
    stop_seconds: float | None = None
    unused_seconds: float | None = None
    exit_code: int | None = None
    host: str = ""
    pid: int = 0
    slurm_job: str = ""
    slurm_node: str = ""
    slurm_cluster: str = ""
    slurm_partition: str = ""  # empty also of one that was killed
    mem_mb: int = 0  # what the config asked for
    start: str = ""  # the start of snakemake that it belongs to

    @classmethod
    def of(cls, end: SegmentEnd, **job: Any) -> Attempt:
        """Return the attempt that ended so; `job` are its own fields."""
        return cls(**{name: getattr(end, name) for name in SegmentEnd.__dataclass_fields__}, **job)

    @property
    def has_stopped_by_itself(self) -> bool:
        """Return True if its program was asked to stop, saved and left; old lines know a kill by its code alone."""
        is_killed = self.was_killed_stopping or self.exit_code in KILLED_CODES
        return self.stop_seconds is not None and not self.kind.is_failure and not is_killed


# Enough for all that is said of a run but what it cost in all.
RECENT = 1000


class History:
    """The file `results/<run>/history.jsonl`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def attempts(self, newest: int | None = None) -> list[Attempt]:
        """Return all attempts, or so many of the newest lines, oldest first.

        A line torn by a kill is passed over, FormatError at one of another format.
        """
        with closing(self._lines()) as lines:
            chosen = lines if newest is None else deque(lines, newest)
            return [attempt for source, line in chosen if (attempt := _parsed(source, line)) is not None]

    def append(self, attempt: Attempt) -> None:
        """Add one line and flush it; if the process dies inside, readers pass the torn line over."""
        text = FORMAT.text(attempt.to_json(), indent=None)
        with fs.storage_errors(self.path, len(text)):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                fs.write_all(descriptor, _missing_newline(descriptor) + text)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _lines(self) -> Generator[tuple[str, str], None, None]:
        with suppress(FileNotFoundError), self.path.open(errors="replace") as file:
            for number, line in enumerate(file, 1):
                yield f"{self.path}:{number}", line


def _parsed(source: str, line: str) -> Attempt | None:
    try:
        return Attempt.parse(FORMAT.parse(line, source))
    except (ValueError, TypeError, KeyError):
        return None


def _missing_newline(descriptor: int) -> str:
    """Return a newline if a kill left half a line, so that the next one is not glued to it; else ''."""
    size = os.fstat(descriptor).st_size
    return "\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else ""
