"""The sign of life of a segment's job: the claim in its run's lease, which changes with every heartbeat."""

from __future__ import annotations

import os
import time
from enum import Enum
from pathlib import Path

from snakemake_executor_plugin_unbroken.segments import Out
from unbroken.runs.lease import HEARTBEAT_SECONDS
from unbroken.system import jsontext

SILENT_SECONDS = 3.5 * HEARTBEAT_SECONDS


class Pulse(Enum):
    """What the lease says of a job that has left no record."""

    UNKNOWN = "not seen yet"
    BEATS = "alive"
    SILENT = "no heartbeat"
    LEFT = "gave the run back without a record"


def feel(out: Out) -> Pulse:
    """The pulse of a job, counted from when its claim last changed as seen from here, so no clocks are compared."""
    now = time.monotonic()
    seen = _newest_claim(out.segment.places.lease)
    if seen is None:
        return Pulse.UNKNOWN
    path, changed = seen
    if (path.name, changed) != out.claim:
        job, has_left = _read(path)
        if job != out.job_id:
            return Pulse.UNKNOWN
        out.claim, out.heard, out.has_left = (path.name, changed), now, has_left
    if out.has_left:
        return Pulse.LEFT
    return Pulse.SILENT if now - out.heard > SILENT_SECONDS else Pulse.BEATS


def claimed_by(folder: Path) -> str:
    """The Slurm job that holds, or last held, the lease; empty if none did."""
    seen = _newest_claim(folder)
    return _read(seen[0])[0] if seen else ""


def _newest_claim(folder: Path) -> tuple[Path, int] | None:
    try:
        numbers = [name for name in os.listdir(folder) if name.endswith(".json") and name[:-5].isdecimal()]
        newest = folder / max(numbers, key=lambda name: int(name[:-5]))
        return newest, newest.stat().st_mtime_ns
    except (OSError, ValueError):  # none yet, or replaced in this moment
        return None


def _read(path: Path) -> tuple[str, bool]:
    try:
        claim = jsontext.parse(path.read_text())
        return str(claim["slurm_job"]), bool(claim["released_utc"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", False
