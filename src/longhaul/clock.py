"""Time as it is written down: UTC, to the second, sortable."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> str:
    """Now, as in `2026-11-21T02:26:42Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def folder_stamp(utc: str) -> str:
    """The same time without the signs that folder names had better not carry."""
    return utc.replace("-", "").replace(":", "")


def age_seconds(utc: str) -> float:
    """Seconds since a time that `utc_now` gave."""
    then = datetime.strptime(utc, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return (datetime.now(UTC) - then).total_seconds()
