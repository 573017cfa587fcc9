"""Find the events of a run from its files alone; each event has a key that is the same at every look."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile

from unbroken.config.notify import NotifySettings
from unbroken.report.status import RunState, RunStatus
from unbroken.store.attempts import all_attempts
from unbroken.store.history import Attempt
from unbroken.store.layout import NOTES, Format, RunFolder
from unbroken.store.progress import amount
from unbroken.system import fs
from unbroken.system.clock import age_seconds, duration, folder_stamp, unix_seconds

# A driver tries again at once; what nothing has taken up for so long is left.
LEFT_SECONDS = 600.0
# A user who switches `notify:` on gets no notification of what ended long before.
OLD_SECONDS = 7 * 86400.0
# A calendar has an end.
LONGEST_SECONDS = 100 * 365 * 86400.0
STORM_ATTEMPTS, STORM_SECONDS = 5, 3600.0
FORMAT = Format()
_AT_WORK = {RunState.WORKING, RunState.QUEUED}


@dataclass(frozen=True)
class Event:
    """An event to be sent once: `key` is a part of a file's name."""

    event: str
    run: str
    key: str
    message: str


@dataclass(frozen=True)
class Look:
    """The state of all runs of a folder; `is_driver_over` if the caller has just driven them."""

    rows: Sequence[RunStatus]
    is_driver_over: bool = False
    is_slurm_silent: bool = False  # it has not said whether jobs are out

    @property
    def is_quiet(self) -> bool:
        """Return True if no run is running or in the queue: then nothing resumes one that has paused."""
        return not any(row.state in _AT_WORK for row in self.rows)


def events_of(row: RunStatus, places: RunFolder, look: Look, settings: NotifySettings) -> Iterator[Event]:
    """Yield the present events of a run, whether or not a notification was sent before."""
    attempts = all_attempts(places)
    found = (
        _ended(row, places, attempts, look),
        _storm(row, attempts),
        _stalled(row, places, attempts, settings.stalled_minutes * 60),
        _late(row, attempts, settings.by),
    )
    yield from (event for event in found if event is not None and event.event in settings.events)


def _ended(row: RunStatus, places: RunFolder, attempts: Sequence[Attempt], look: Look) -> Event | None:
    if not attempts or (age := _age_seconds(attempts[-1], places)) > OLD_SECONDS:
        return None
    key = _name(attempts[-1])
    if row.state is RunState.FINISHED:
        return Event("finished", row.run, f"finished-{key}", f"{row.run}: finished, {_done(row)}; {row.advice}")
    if look.is_slurm_silent and attempts[-1].slurm_job:
        return None
    is_left = look.is_driver_over or age > LEFT_SECONDS
    is_over = row.state in {RunState.STOPPED, RunState.USED_UP}
    if is_left and (is_over or (row.state is RunState.PAUSED and look.is_quiet)):
        why = row.state.value if is_over else "stopped, nothing resumes it"
        return Event("stopped", row.run, f"stopped-{key}", f"{row.run}: {why}, {_done(row)}; {row.advice}")
    return None


def _age_seconds(last: Attempt, places: RunFolder) -> float:
    """Return how long ago an attempt ended; by its line of history if it ended on a node whose clock is ahead."""
    age = age_seconds(last.ended_utc)
    if not age:
        with suppress(OSError):
            return abs(time.time() - places.history.stat().st_mtime)
    return age


def _storm(row: RunStatus, attempts: Sequence[Attempt]) -> Event | None:
    """Return one event for a row of attempts without progress, all in a short time."""
    idle = list(takewhile(lambda attempt: not attempt.has_advanced, reversed(attempts)))
    if len(idle) < STORM_ATTEMPTS or age_seconds(idle[0].ended_utc) > OLD_SECONDS:
        return None
    seconds = unix_seconds(idle[0].ended_utc) - unix_seconds(idle[STORM_ATTEMPTS - 1].started_utc)
    if seconds > STORM_SECONDS:
        return None
    what = f"{len(idle)} attempts without progress, the last {STORM_ATTEMPTS} within {duration(seconds)}"
    return Event("storm", row.run, f"storm-{_name(idle[-1])}", f"{row.run}: {what}; {idle[0].line()}")


def _stalled(row: RunStatus, places: RunFolder, attempts: Sequence[Attempt], most_seconds: float) -> Event | None:
    if row.state is not RunState.WORKING or row.progress is None:
        return None
    seconds = _still_seconds(places, row.progress.done)
    if seconds < most_seconds:
        return None
    key = f"stalled-{len(attempts)}-{row.progress.done:.10g}"
    return Event("stalled", row.run, key, f"{row.run}: at {_done(row)} for {duration(seconds)}; {row.advice}")


def _still_seconds(places: RunFolder, done: float) -> float:
    """Return for how long the looks have found this progress, by the file server's clock; 0 at the first one."""
    path = places.base / NOTES / "notify" / places.name / "progress.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    now = fs.now_of(path.parent)
    with suppress(ValueError, KeyError, TypeError):  # the first look, or a file that a kill has torn
        seen = FORMAT.found(path)
        if seen["done"] == done:
            return max(now - float(seen["since"]), 0.0)
    FORMAT.write(path, {"done": done, "since": now})
    return 0.0


def _late(row: RunStatus, attempts: Sequence[Attempt], by: date | None) -> Event | None:
    """Return an event if the median of the forecast is behind the date."""
    if row.forecast is None or not attempts or by is None:
        return None
    end = datetime.now(UTC) + timedelta(seconds=min(row.forecast.median_seconds, LONGEST_SECONDS))
    if end.date() <= by:
        return None
    said = f"done on {end:%Y-%m-%d} rather than by {by}, says the forecast (median); {_done(row)}"
    return Event("late", row.run, f"late-{by}-{_name(attempts[0])}", f"{row.run}: {said}")


def _name(attempt: Attempt) -> str:
    """Return a name that no other attempt has, not even one from before an `unbroken restart`."""
    return f"{attempt.token:06d}-{folder_stamp(attempt.started_utc)}"


def _done(row: RunStatus) -> str:
    if row.progress is None:
        return "nothing saved"
    goal = "" if row.progress.goal is None else f" of {row.progress.goal:.10g}"
    return f"{amount(row.progress.done)}{goal} {row.progress.unit}".rstrip()
