"""`queue_wait_minutes` beside the length of a segment."""

from __future__ import annotations

from collections.abc import Iterator

from unbroken.config.location import Spot
from unbroken.runs.run import Run


def mistakes(run: Run, spot: Spot) -> Iterator[str]:
    """The next job may start a minute after the one before at the earliest: Slurm counts whole minutes."""
    most = run.segment_minutes - 1
    if run.queue_wait_minutes > max(0.0, most):
        found = f"found {run.queue_wait_minutes:g}, but segment_minutes is {run.segment_minutes:g}"
        allowed = f"at most {most:g}, or 0" if most > 0 else "0"
        yield f"{spot.at('queue_wait_minutes')}: {found}; allowed: {allowed}"
