"""The history of a run: one JSON line per attempt, appended by whoever holds the lease."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from sys import intern
from typing import Any

from unbroken.runs import formats
from unbroken.runs.outcome import EndCause, Outcome
from unbroken.runs.times import NO_TIMES, Times, parse_times
from unbroken.system import fs, jsontext

FORMAT = 1  # of each line
# What a program that a KILL ended leaves, as its parent sees it and as a shell, or srun, says it.
KILLED_CODES = frozenset({-signal.SIGKILL, 128 + signal.SIGKILL})


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one job did for a run.  Times in seconds, progress in the run's unit."""

    token: int
    segment: int
    driver_attempt: int
    outcome: Outcome
    started_utc: str
    ended_utc: str
    from_checkpoint: str | None
    to_checkpoint: str | None
    progress_from: float
    progress_to: float
    unit: str
    work_seconds: float
    saves: int
    save_seconds: float
    stop_seconds: float | None
    unused_seconds: float | None
    exit_code: int | None
    host: str
    pid: int
    slurm_job: str
    message: str
    # Histories that began before these were kept lack them.
    slurm_node: str = ""
    slurm_cluster: str = ""
    cause: str = ""  # how Slurm ended the job, in its own words, where that is known
    mem_mb: int = 0  # what the config asked for
    is_hopeless: bool = False  # the computation itself went wrong; the same again would bring the same
    is_storage_failure: bool = False  # the disk was full or did not answer, which says nothing of the checkpoint
    start: str = ""  # the start of snakemake that it belongs to
    before_work: str = ""  # why its work never began (`BeforeWork`); empty if it did
    times: Times = NO_TIMES
    slurm_partition: str = ""  # empty also of one that was killed
    end_cause: str = ""  # `EndCause`; empty where there is nothing to say
    killed_after_seconds: float | None = None  # since the program was asked to stop; `stop_seconds` is then None

    @property
    def has_advanced(self) -> bool:
        return self.to_checkpoint is not None and self.to_checkpoint != self.from_checkpoint

    @property
    def was_killed_stopping(self) -> bool:
        """True if its program, or its job, was killed before it had saved what it was asked to save."""
        return self.end_cause == EndCause.KILLED_STOPPING.value

    @property
    def lacks_results(self) -> bool:
        """True if all was computed and making `final/` failed."""
        return self.end_cause == EndCause.NO_RESULTS.value

    @property
    def gets_more_margin(self) -> bool:
        """True if it was killed while stopping and the next attempt is asked earlier."""
        return self.was_killed_stopping and self.times.next_margin_seconds is not None

    @property
    def has_stopped_by_itself(self) -> bool:
        """True if its program was asked to stop, saved and left; lines of earlier versions tell a kill by its code."""
        is_good = self.outcome.settles or self.outcome is Outcome.INTERRUPTED
        is_killed = self.was_killed_stopping or self.exit_code in KILLED_CODES
        return self.stop_seconds is not None and is_good and not is_killed


_FIELDS = dict.fromkeys(entry.name for entry in fields(Attempt))
# As the key stands in a line; within a message the quotes would be escaped.
_NUMBER = f'"{formats.KEY}":'
_BLOCK_BYTES = 1 << 20
# Enough for all that is said of a run but what it cost in all.
RECENT = 1000


class History:
    """The file `results/<run>/history.jsonl`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def attempts(self, newest: int | None = None) -> list[Attempt]:
        """Return all attempts, or about so many of the newest ones, oldest first; those are read from the file's end.

        A line torn by a kill is passed over, FormatError at one of a newer unbroken.
        """
        with closing(self._lines() if newest is None else self._last_lines(newest)) as lines:
            return [attempt for where, line in lines if (attempt := self._parsed(where, line)) is not None]

    def refuse_newer(self) -> None:
        """FormatError at the first line that a newer unbroken wrote; costs little where there is none."""
        with closing(self._lines()) as lines:
            for where, line in lines:
                if _NUMBER in line:
                    self._parsed(where, line)

    def append(self, attempt: Attempt) -> None:
        """Adds one line and flushes it; if the process dies inside, readers pass the torn line over."""
        values = {name: getattr(attempt, name) for name in _FIELDS}
        data = {**values, "outcome": attempt.outcome.value, "times": attempt.times.to_json()}
        text = json.dumps(formats.numbered(data, FORMAT)) + "\n"
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
                yield f":{number}", line

    def _last_lines(self, count: int) -> Generator[tuple[str, str], None, None]:
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            begin, data = file.seek(0, os.SEEK_END), b""
            while begin and data.count(b"\n") <= count:
                size = min(begin, _BLOCK_BYTES)
                begin = file.seek(begin - size)
                data = file.read(size) + data
            for line in data.decode(errors="replace").splitlines()[-count:]:
                yield "", line

    def _parsed(self, where: str, line: str) -> Attempt | None:
        try:
            data: Mapping[str, Any] = jsontext.parse(line)
            formats.refuse_newer(data, FORMAT, f"{self.path}{where}")
            # A later version may have added some.
            # The same few words stand in each of 100,000 lines.
            known: dict[str, Any] = {
                name: intern(value) if type(value) is str else value for name, value in data.items() if name in _FIELDS
            }
            outcome, times = Outcome(data["outcome"]), parse_times(data.get("times", {}))
            return Attempt(**{**known, "outcome": outcome, "times": times})
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def _missing_newline(descriptor: int) -> str:
    """A kill may have left half a line: the next one must not be glued to it."""
    size = os.fstat(descriptor).st_size
    return "\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else ""
