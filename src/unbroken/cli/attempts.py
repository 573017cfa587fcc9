"""The attempts of one run, as `unbroken status RUN` shows them: what each came to, where, and which log to open."""

from __future__ import annotations

from collections.abc import Iterator

from unbroken.report.known import segment_logs, segment_to_show
from unbroken.store.attempts import all_attempts
from unbroken.store.history import Attempt
from unbroken.store.layout import RunFolder
from unbroken.store.progress import amount
from unbroken.system.clock import duration

SHOWN = 100


def attempt_lines(places: RunFolder) -> Iterator[str]:
    """Make a line for each attempt, below it why it settled nothing or was killed; then the newest log."""
    attempts = all_attempts(places, SHOWN + 1)
    if len(attempts) > SHOWN:
        yield f"the newest {SHOWN}; all: {places.history}"
    for attempt in attempts[-SHOWN:]:
        yield _line(attempt)
        if not attempt.kind.settles or attempt.was_killed_stopping:
            yield f"    {attempt.line()}"
    if logs := segment_logs(places):
        yield f"log: {logs[segment_to_show(places, logs)]}"


def _line(attempt: Attempt) -> str:
    done = f"{amount(attempt.progress_from)} -> {amount(attempt.progress_to)} {attempt.unit}".rstrip()
    job = f", Slurm job {attempt.slurm_job}" if attempt.slurm_job else ""
    where = f"{attempt.slurm_node or attempt.host}{job}"
    ended = attempt.why or attempt.kind
    return (
        f"segment {attempt.segment}  {ended}  {done}  {duration(attempt.work_seconds)} on {where}  {attempt.ended_utc}"
    )
