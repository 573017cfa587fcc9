"""Lines of history for what reads them: an account, a forecast, a page."""

from __future__ import annotations

from dataclasses import replace

from unbroken.store.history import Attempt, EndKind
from unbroken.system.clock import utc_text

# 2026-01-05 09:00 UTC, a Monday.
MONDAY = 1_767_603_600.0
PLAIN = Attempt(
    token=1,
    segment=1,
    driver_attempt=1,
    kind=EndKind.PAUSED,
    started_utc=utc_text(MONDAY),
    ended_utc=utc_text(MONDAY + 3500),
    from_checkpoint=None,
    to_checkpoint="one",
    progress_from=0.0,
    progress_to=100.0,
    unit="steps",
    work_seconds=3500.0,
    saves=7,
    save_seconds=1.0,
    stop_seconds=1.0,
    unused_seconds=100.0,
    exit_code=85,
    host="node1",
    pid=1,
    slurm_job="",
    message="",
)


def chain(*advances: float, wait: float = 10.0, **changes: object) -> list[Attempt]:
    """A segment of an hour for each advance, with `wait` seconds between them."""
    made, done = [], 0.0
    for number, advance in enumerate(advances):
        began = MONDAY + number * (3500 + wait)
        made.append(
            replace(
                PLAIN,
                token=number + 1,
                segment=number + 1,
                started_utc=utc_text(began),
                ended_utc=utc_text(began + 3500),
                from_checkpoint=str(number),
                to_checkpoint=str(number + 1),
                progress_from=done,
                progress_to=done + advance,
                **changes,  # type: ignore[arg-type]
            )
        )
        done += advance
    return made
