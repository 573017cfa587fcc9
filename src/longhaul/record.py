"""The record: the small file that a segment's rule emits, `results/<run>/segments/<segment>.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from longhaul import fs
from longhaul.outcome import Outcome
from longhaul.progress import Progress, parse_progress


@dataclass(frozen=True)
class Record:
    """Which checkpoint a segment left and how it ended; `has_worked` is false where it only passed a finish on."""

    run: str
    segment: int
    outcome: Outcome
    has_worked: bool
    checkpoint: str
    progress: Progress
    written_utc: str

    def write(self, path: Path) -> None:
        """Publishes the record in one step."""
        data = {**vars(self), "outcome": self.outcome.value, "progress": self.progress.to_json()}
        path.parent.mkdir(parents=True, exist_ok=True)
        fs.write_atomic(path, json.dumps(data, indent=2) + "\n")


def read_record(path: Path) -> Record | None:
    """The record at `path`; None if there is none or somebody has spoilt it."""
    try:
        data = json.loads(path.read_text())
        progress = parse_progress(data.pop("progress"), str(path))
        return Record(**{**data, "outcome": Outcome(data["outcome"]), "progress": progress})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
