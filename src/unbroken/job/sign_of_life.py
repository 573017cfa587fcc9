"""The sign of life of a run's job: the claim in the run's lease, which changes with every heartbeat."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from unbroken.errors import FormatError, LeaseError
from unbroken.runs.claim import claim_path
from unbroken.runs.lease import HEARTBEAT_SECONDS, newest_claim

SILENT_SECONDS = 3.5 * HEARTBEAT_SECONDS


class SignOfLife:
    """Counts from when the claim last changed as seen from here, so no clocks are compared."""

    def __init__(self) -> None:
        self._claim, self._heard = (0, 0), 0.0
        self._is_silent = False
        self.has_left = False  # the job gave the run back without a record

    def has_ceased(self, lease: Path, segment: int) -> bool:
        """Return True once for each time that the job of a segment has left, or sends no heartbeat any more."""
        claim, now, before = None, time.monotonic(), (self.has_left, self._is_silent)
        with suppress(OSError, LeaseError, FormatError):  # replaced in this moment
            if (claim := newest_claim(lease)) is not None:
                seen = claim.token, claim_path(lease, claim.token).stat().st_mtime_ns
                self._claim, self._heard = seen, self._heard if seen == self._claim else now
        if claim is None or claim.segment != segment:
            self.has_left = self._is_silent = False
            return False
        self.has_left = bool(claim.released_utc)
        self._is_silent = not self.has_left and now - self._heard > SILENT_SECONDS
        return (self.has_left or self._is_silent) and before != (self.has_left, self._is_silent)
