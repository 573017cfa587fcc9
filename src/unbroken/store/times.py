"""The times of an attempt: noted as things happen, in a file that outlives a kill, and kept in its line of history.

The file is what a successor has of an attempt that was killed, and what others see of a running one.  Standard library
alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from unbroken.slurm.queue import ended, job_by_controller
from unbroken.slurm.this_job import SlurmJob
from unbroken.store.layout import Format
from unbroken.store.progress import is_number

FORMAT = Format()
# The note of an attempt, in its folder; of a training alone, which has none, next to its claim under that one's number.
# It has the times, and what a successor must know if the attempt is killed.
FILE_NAME = "attempt.json"
SUSPENSIONS = "suspensions"
# A start of a job on Slurm: its number, when it began (Unix seconds), its cluster.
JobStart = tuple[str, float, str]
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


_LOOKS_AFTER_SECONDS = (0.0, 3.0, 10.0, 30.0)
LOOK_SECONDS = 1.0
# A thread that wakes so much later than it should was stopped; a busy machine is not so late.
SUSPENDED_SECONDS = 5.0


class Moments:
    """Keep the times of one attempt in its note; `note` is what else is in there.

    `ahead_seconds` is what this node's clock is ahead of the one that all share.
    """

    def __init__(
        self, path: Path, slurm_job: SlurmJob | None, ahead_seconds: float, note: Mapping[str, object] | None = None
    ) -> None:
        self._note = dict(note or {})
        self._path, self._job_id = path, slurm_job.job_id if slurm_job else ""
        self._ahead = slurm_job.clock_ahead_seconds if slurm_job else ahead_seconds
        self._times = replace(NO_TIMES, clock_ahead_seconds=self._ahead)
        self._previous: JobStart | None = None
        self._lock = threading.Lock()
        self._asking = threading.Thread(target=self._ask_slurm, name="job-times", daemon=True)
        self.watch = SuspensionWatch(self._note_suspension)

    def begin(self, job_started: float, previous: JobStart | None = None) -> None:
        """Note that the attempt begins; `job_started` (time.time()) counts where Slurm does not say when the job began.

        Slurm is asked meanwhile, also when the `previous` job has left, and nothing waits for it.
        """
        self._previous = previous
        self.watch.start()
        self._set(job_started=job_started - self._ahead)
        if self._job_id:
            self._asking.start()

    def note(self, name: str, seconds_ago: float = 0.0) -> None:
        """Note that this happens now, or did a moment ago; of things that happen again the first counts."""
        if getattr(self._times, name) is None:
            self._set(**{name: time.time() - seconds_ago - self._ahead})

    def note_stop(self, seconds_ago: float, margin_seconds: float | None, next_seconds: float | None) -> None:
        """Note at once that the program was asked to stop, so that a job that is killed by then leaves it behind."""
        told = {"stop_margin_seconds": margin_seconds, "next_margin_seconds": next_seconds}
        self._set(**{name: value for name, value in told.items() if value is not None})
        self.note("stop_asked", seconds_ago)

    def note_save(self, seconds_ago: float, stall_seconds: float) -> None:
        """Note that a checkpoint has what the program had done by then; it stood still for so long just before."""
        saved = time.monotonic() - seconds_ago
        stall_seconds -= self.watch.seconds_between(saved - stall_seconds, saved)
        stood = {"stall_seconds": (self._times.stall_seconds or 0.0) + stall_seconds} if stall_seconds > 0 else {}
        self._set(saved=time.time() - seconds_ago - self._ahead, **stood)

    def has(self, name: str) -> bool:
        """Return True if it has happened."""
        return getattr(self._times, name) is not None

    @property
    def so_far(self) -> Times:
        """Return what is known until now."""
        return self._times

    def times(self) -> Times:
        """Return all that is known at the end of the attempt."""
        self.watch.stop()
        self.note("ended")  # a controller that has not answered by now is not waited for
        return self._times

    def _ask_slurm(self) -> None:
        found = job_by_controller(self._job_id)
        if found is not None:
            known = {"submitted": found.submit_unix, "eligible": found.eligible_unix, "job_started": found.start_unix}
            self._set(**{name: value for name, value in known.items() if value is not None})
        if self._previous is not None:
            self._ask_for_end(self._previous)

    def _ask_for_end(self, previous: JobStart) -> None:
        """Ask until it has left: the controller calls that running, or completing, for some seconds."""
        for seconds in _LOOKS_AFTER_SECONDS:
            time.sleep(seconds)
            end = ended(*previous)
            if end is not None and end.end_unix is not None:
                self._set(previous_job_ended=end.end_unix)
                return

    def _note_suspension(self, begin: float, end: float) -> None:
        to_unix = time.time() - self._ahead - time.monotonic()
        with self._lock:
            self._times = self._times.suspended(begin + to_unix, end + to_unix)
        self._set()

    def _set(self, **changes: float) -> None:
        """Write it into the file too; without a flush, because only a killed process has to leave it behind."""
        with self._lock:
            self._times = replace(self._times, **cast(dict[str, Any], changes))
            with suppress(OSError):
                draft = self._path.with_suffix(".tmp")
                draft.write_text(FORMAT.text({**self._note, "times": self._times.to_json()}, indent=None))
                draft.replace(self._path)


class SuspensionWatch:
    """Notice that this process was stopped for a while (`scontrol suspend`, SIGSTOP).

    It looks at the clock once a second, from `start` to `stop`; each query looks as well, so it never lags.

    `note` receives the begin and the end of each suspension, as `time.monotonic()`, to a second.
    """

    def __init__(self, note: Callable[[float, float], None] = lambda begin, end: None) -> None:
        self._note = note
        self._found: list[tuple[float, float]] = []
        self._due = float("inf")
        self._lock, self._is_over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="suspensions", daemon=True)

    def start(self) -> None:
        self._due = time.monotonic() + LOOK_SECONDS
        self._thread.start()

    def stop(self) -> None:
        """Look for the last time, and end the thread."""
        self._look()
        with self._lock:
            self._is_over.set()

    def clock(self) -> float:
        """Return `time.monotonic()` without the time in which this process was stopped."""
        self._look()
        return time.monotonic() - sum(end - begin for begin, end in self._found)

    def seconds_between(self, begin: float, end: float) -> float:
        """Return how long it was stopped between two moments of `time.monotonic()`."""
        self._look()
        return sum(max(min(until, end) - max(since, begin), 0.0) for since, until in self._found)

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            self._look(is_due=True)

    def _look(self, *, is_due: bool = False) -> None:
        with self._lock:
            now, due = time.monotonic(), self._due
            is_late = now - due > SUSPENDED_SECONDS and not self._is_over.is_set()
            if is_late:
                self._found.append((due, now))
            if is_late or is_due:
                self._due = now + LOOK_SECONDS
        if is_late:
            self._note(due, now)
