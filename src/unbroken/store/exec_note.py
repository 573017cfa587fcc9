"""The note of a job for its driver, by `unbroken exec` or a training by itself: Snakemake turns exit code 85 into 1."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unbroken.slurm.this_job import own_job_id
from unbroken.store.history import EndKind
from unbroken.store.layout import EXEC_NOTES, Format

FORMAT = Format()
# So many attempts that bring nothing new end a run, for the job and for the driver.
ATTEMPTS_WITHOUT_PROGRESS = 3
# No job is so long that its driver would still ask for its note.
OLD_NOTE_SECONDS = 90 * 86400.0


@dataclass(frozen=True)
class ExecNote:
    """Say which run a job works for, how its attempt ended (None while it works, or if it was killed), and why."""

    name: str
    store: str
    kind: EndKind | None
    segment: int
    reason: str = ""

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> ExecNote:
        """Return the content of a note; raise ValueError, TypeError or KeyError if it is none."""
        return cls(**{**data, "kind": EndKind(data["kind"]) if data["kind"] else None})


def note_path(folder: Path, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the note of the job around us, in the folder that holds `.snakemake`; None outside Slurm."""
    job = own_job_id(environment)
    restart = environment.get("SLURM_RESTART_COUNT", "0")
    return folder / EXEC_NOTES / f"{job}.{restart}.json" if job and (folder / ".snakemake").is_dir() else None


def write_note(path: Path | None, note: ExecNote) -> None:
    """Write it in one step; a disk that takes no note ends no work."""
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        FORMAT.write(path, asdict(note), indent=None)
        if note.kind is None:
            _remove_old(path.parent)


def _remove_old(folder: Path) -> None:
    """Remove old notes: each job leaves one."""
    for entry in os.scandir(folder):
        if entry.name.endswith(".json") and time.time() - entry.stat().st_mtime > OLD_NOTE_SECONDS:
            Path(entry.path).unlink(missing_ok=True)


def read_note(path: Path) -> ExecNote | None:
    """Return the note in a file; None if there is none, or a torn one."""
    try:
        return ExecNote.parse(FORMAT.found(path))
    except (ValueError, TypeError, KeyError):
        return None
