"""Note the times of an attempt as things happen, in a file that outlives a kill.

The times go into the attempt's line of history; the file is what a successor has of an attempt that was killed, and
what others see of a running one.  Standard library alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from unbroken.slurm.queue import ended, job_by_controller
from unbroken.slurm.this_job import SlurmJob
from unbroken.store.history import Attempt
from unbroken.store.times import FORMAT, NO_TIMES, Times
from unbroken.system.clock import unix_seconds

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
        self._previous: Attempt | None = None
        self._lock = threading.Lock()
        self._asking = threading.Thread(target=self._ask_slurm, name="job-times", daemon=True)
        self.watch = SuspensionWatch(self._note_suspension)

    def begin(self, job_started: float, previous: Attempt | None = None) -> None:
        """Note that the attempt begins; `job_started` (time.time()) counts where Slurm does not say when the job began.

        Slurm is asked meanwhile, also when the job of the `previous` attempt has left, and nothing waits for it.
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
        before = self._previous
        if before is not None and before.slurm_job and before.times.job_ended is None:
            self._ask_for_end(before)

    def _ask_for_end(self, before: Attempt) -> None:
        """Ask until it has left: the controller calls that running, or completing, for some seconds."""
        for seconds in _LOOKS_AFTER_SECONDS:
            time.sleep(seconds)
            end = ended(before.slurm_job, unix_seconds(before.started_utc), before.slurm_cluster)
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
