"""The sign of life of a segment's job: the claim in its run's lease, which changes with every heartbeat."""

from __future__ import annotations

import time
from contextlib import suppress
from enum import Enum
from pathlib import Path

from snakemake_executor_plugin_unbroken.segments import Out
from unbroken.errors import FormatError, LeaseError
from unbroken.runs.claim import Claim, claim_path
from unbroken.runs.lease import HEARTBEAT_SECONDS, newest_claim

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
    claim, changed = _newest(out.segment.lease)
    if claim is None:
        return Pulse.UNKNOWN
    if (claim.token, changed) != out.claim:
        if claim.segment != out.segment.at_work().number:
            return Pulse.UNKNOWN
        out.claim, out.heard, out.has_left = (claim.token, changed), now, bool(claim.released_utc)
        out.first_heard = now if out.first_heard is None else out.first_heard
    if out.has_left:
        return Pulse.LEFT
    return Pulse.SILENT if now - out.heard > SILENT_SECONDS else Pulse.BEATS


def _newest(folder: Path) -> tuple[Claim | None, int]:
    """The claim that counts, and when it was last changed; none also where it is replaced in this moment."""
    with suppress(OSError, LeaseError, FormatError):
        if claim := newest_claim(folder):
            return claim, claim_path(folder, claim.token).stat().st_mtime_ns
    return None, 0
