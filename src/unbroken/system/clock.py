"""Time as it is written down: moments in UTC, to the second, sortable; lengths as people say them."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> str:
    """Return the present time as in `2026-11-21T02:26:42Z`."""
    return utc_text(datetime.now(UTC).timestamp())


def utc_text(moment: float) -> str:
    """Return any moment, given in seconds since 1970, as in `2026-11-21T02:26:42Z`."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def folder_stamp(utc: str) -> str:
    """Return a time of `utc_now` without `-` and `:`, for the name of a folder."""
    return utc.replace("-", "").replace(":", "")


def unix_seconds(utc: str) -> float:
    """Return a time that `utc_now` gave as seconds since 1970; raise ValueError for any other text."""
    if len(utc) != len("2026-11-21T02:26:42Z") or utc[-1] != "Z":
        raise ValueError(f"found {utc!r}, allowed: a time as {utc_now()}")
    return datetime.fromisoformat(utc).timestamp()  # ten times as fast as strptime; a history has 100,000 of them


def age_seconds(utc: str) -> float:
    """Return the seconds since a time that `utc_now` gave; 0 of one that a machine gave whose clock is ahead."""
    return max(0.0, datetime.now(UTC).timestamp() - unix_seconds(utc))


def duration(seconds: float) -> str:
    """Return a duration as in `45 s`, `12 min`, `3.5 h`, `2.1 d`."""
    for limit, divisor, unit in ((90, 1, "s"), (90 * 60, 60, "min"), (36 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}" if divisor < 3600 else f"{seconds / divisor:.1f} {unit}"
    return f"{seconds / 86400:.1f} d"
