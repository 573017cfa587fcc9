"""The record: the small file that a segment's rule emits, `results/<run>/segments/<segment>.json`."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, fields
from pathlib import Path

from unbroken.runs import formats
from unbroken.runs.progress import Progress, parse_progress
from unbroken.runs.segment_end import EndKind
from unbroken.system import fs, jsontext

FORMAT = 2


@dataclass(frozen=True)
class Record:
    """Which checkpoint a segment left and how it ended; `has_worked` is false where it only passed a finish on."""

    run: str
    segment: int
    kind: EndKind
    has_worked: bool
    checkpoint: str
    progress: Progress
    written_utc: str

    def write(self, path: Path) -> None:
        """Publishes the record in one step."""
        data = {**vars(self), "progress": self.progress.to_json()}
        path.parent.mkdir(parents=True, exist_ok=True)
        fs.write_atomic(path, json.dumps(formats.numbered(data, FORMAT), indent=2) + "\n")
        with contextlib.suppress(OSError):
            _let_no_older_one_be_newer(path, path.with_name(f"{self.segment - 1:03d}.json"))


_FIELDS = {entry.name for entry in fields(Record)}


def read_record(path: Path) -> Record | None:
    """The record at `path`; None if there is none or somebody has spoilt it.

    FormatError if a newer unbroken wrote it.
    """
    try:
        data = jsontext.parse(path.read_text())
        formats.refuse_newer(data, FORMAT, path)
        known = {name: value for name, value in data.items() if name in _FIELDS}  # a later version may have added some
        progress = parse_progress(data["progress"], str(path))
        kind = EndKind(data["kind"] if "kind" in data else data["outcome"])  # its name in format 1
        return Record(**{**known, "kind": kind, "progress": progress})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _let_no_older_one_be_newer(path: Path, before: Path) -> None:
    """Snakemake calls a job failed whose input is newer than its output: a clock was set back, or files restored."""
    written = path.stat().st_mtime_ns
    if before.stat().st_mtime_ns > written:
        os.utime(before, ns=(written, written))
