"""Hold the times of an attempt, as its line of history keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from unbroken.store.formats import Format
from unbroken.store.progress import is_number

FORMAT = Format()
# The note of an attempt, in its folder; of a training alone, which has none, next to its claim under that one's number.
# It has the times, and what a successor must know if the attempt is killed.
FILE_NAME = "attempt.json"
SUSPENSIONS = "suspensions"
# A job may be stopped every half minute for days (gang scheduling): a line of history stays short.
MOST_SUSPENSIONS = 50


@dataclass(frozen=True)
class Times:
    """Moments in Unix seconds by one clock for all attempts: Slurm's where there is one, else the file server's.

    None where it did not happen, or is unknown; `..._seconds` are lengths.
    """

    submitted: float | None = None
    eligible: float | None = None  # from then on nothing but disk space was missing
    job_started: float | None = None  # outside Slurm: the process that became the segment
    program_started: float | None = None
    first_step: float | None = None
    last_step: float | None = None
    stop_asked: float | None = None
    program_ended: float | None = None
    saved: float | None = None  # what the program had done by then is in its last checkpoint
    ended: float | None = None  # the attempt; of one that was killed: its last sign of life, or as Slurm says
    job_ended: float | None = None  # of one that was killed; others cannot know it, see below
    previous_job_ended: float | None = None  # the end of the job of the attempt before, which this one asked for
    stop_margin_seconds: float | None = None  # so long before its end a program is asked to stop, when it was asked
    next_margin_seconds: float | None = None  # what the next attempt keeps if that stop is killed; None: no more
    stall_seconds: float | None = None  # the program stood still to save, all saves before `stop_asked` together
    suspended_seconds: float | None = None  # of those whose length alone is kept
    clock_ahead_seconds: float | None = None  # what the node's clock was ahead by; taken off already
    suspensions: tuple[tuple[float, float], ...] = ()  # begin and end of each time that the job was stopped

    def suspended(self, begin: float, end: float) -> Times:
        """Return the times with one more suspension; beyond `MOST_SUSPENSIONS` the first count by length alone."""
        kept = (*self.suspensions, (begin, end))
        first, kept = kept[:-MOST_SUSPENSIONS], kept[-MOST_SUSPENSIONS:]
        length = sum(until - since for since, until in first)
        seconds = (self.suspended_seconds or 0.0) + length if first else self.suspended_seconds
        return replace(self, suspensions=kept, suspended_seconds=seconds)

    def to_json(self) -> dict[str, Any]:
        """Return what is known, to the millisecond."""
        known = {name: value for name, value in vars(self).items() if value is not None and name != SUSPENSIONS}
        told: dict[str, Any] = {name: round(value, 3) for name, value in known.items()}
        if self.suspensions:
            told[SUSPENSIONS] = [[round(begin, 3), round(end, 3)] for begin, end in self.suspensions]
        return told


NO_TIMES = Times()
_NAMES = {entry.name for entry in fields(Times)} - {SUSPENSIONS}


def read_times(path: Path) -> Times:
    """Return the times of a running attempt, or of one that was killed; none where they cannot be read."""
    return parse_times(FORMAT.found(path).get("times"))


def parse_times(data: object) -> Times:
    """Return what `to_json` gave; what a later version has added, and what is no time, is passed over."""
    if not isinstance(data, Mapping):
        return NO_TIMES
    known = {name: float(value) for name, value in data.items() if name in _NAMES and is_number(value)}
    return Times(**known, suspensions=tuple(_suspensions(data.get(SUSPENSIONS))))


def _suspensions(data: object) -> Iterator[tuple[float, float]]:
    for pair in data if isinstance(data, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and all(map(is_number, pair)):
            yield float(pair[0]), float(pair[1])


def killed_words(seconds: float, times: Times) -> str:
    """Say in one line that a stop was killed, what follows by itself, and which key to raise."""
    said = f"killed {seconds:.1f} s after it was asked to stop"
    margin, following = times.stop_margin_seconds, times.next_margin_seconds
    if margin is None:
        return said
    key, said = "first_margin_seconds", f"{said}, {margin:.1f} s before its end"
    if following is None:
        return f"{said}; raise {key}, or segment_minutes"
    return f"{said}; the next attempt is asked {following:.1f} s before; or raise {key}"
