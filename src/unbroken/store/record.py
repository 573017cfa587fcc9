"""The record: the small file that a segment's rule emits, `results/<run>/segments/<segment>.json`."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from unbroken.errors import CheckpointError
from unbroken.store.history import EndKind
from unbroken.store.layout import Format, known_fields
from unbroken.store.progress import Progress, parse_progress

FORMAT = Format(2)


@dataclass(frozen=True)
class Record:
    """Record the checkpoint and the end of a segment; `has_worked` is false where it only passed a finish on."""

    run: str
    segment: int
    kind: EndKind
    has_worked: bool
    checkpoint: str
    progress: Progress
    written_utc: str

    def write(self, path: Path) -> None:
        """Publish the record in one step."""
        path.parent.mkdir(parents=True, exist_ok=True)
        FORMAT.write(path, {**vars(self), "progress": self.progress.to_json()})
        with contextlib.suppress(OSError):
            _let_no_older_one_be_newer(path, path.with_name(f"{self.segment - 1:03d}.json"))


def read_record(path: Path) -> Record | None:
    """Return the record at `path`, None without a valid one; raise FormatError if it is of another format."""
    data = FORMAT.found(path)
    try:
        progress = parse_progress(data["progress"], str(path))
        return Record(**{**known_fields(Record, data), "kind": EndKind(data["kind"]), "progress": progress})
    except (ValueError, TypeError, KeyError, CheckpointError):
        return None


def _let_no_older_one_be_newer(path: Path, before: Path) -> None:
    """Set the time of the record before to this one's if it is newer: Snakemake fails a job whose input is newer."""
    written = path.stat().st_mtime_ns
    if before.stat().st_mtime_ns > written:
        os.utime(before, ns=(written, written))
