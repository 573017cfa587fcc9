"""The history of a run: one JSON line per attempt, appended by whoever holds the lease."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from unbroken.runs.outcome import Outcome
from unbroken.runs.times import NO_TIMES, Times, parse_times
from unbroken.system import fs, jsontext


@dataclass(frozen=True)
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

    @property
    def has_advanced(self) -> bool:
        return self.to_checkpoint is not None and self.to_checkpoint != self.from_checkpoint


_FIELDS = {entry.name for entry in fields(Attempt)}


class History:
    """The file `results/<run>/history.jsonl`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def attempts(self) -> list[Attempt]:
        """All attempts, oldest first; a line torn by a kill is passed over."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(errors="replace").splitlines()
        return [attempt for line in lines if (attempt := _parse(line)) is not None]

    def append(self, attempt: Attempt) -> None:
        """Adds one line and flushes it; if the process dies inside, readers pass the torn line over."""
        text = json.dumps({**vars(attempt), "outcome": attempt.outcome.value, "times": attempt.times.to_json()}) + "\n"
        with fs.storage_errors(self.path, len(text)):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                fs.write_all(descriptor, _missing_newline(descriptor) + text)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _missing_newline(descriptor: int) -> str:
    """A kill may have left half a line: the next one must not be glued to it."""
    size = os.fstat(descriptor).st_size
    return "\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else ""


def _parse(line: str) -> Attempt | None:
    try:
        data: Mapping[str, Any] = jsontext.parse(line)
        known = {name: value for name, value in data.items() if name in _FIELDS}  # a later version may have added some
        return Attempt(**{**known, "outcome": Outcome(data["outcome"]), "times": parse_times(data.get("times", {}))})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
