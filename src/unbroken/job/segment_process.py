"""The command of one segment inside its job on Slurm: started, followed, and told apart by how it ended.

What keeps it from its work and may pass by itself (a disk, a file that is being edited) is given some minutes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbroken.job.end_note import NoteFile
from unbroken.slurm.this_job import job_around_us
from unbroken.store import attempts as endings
from unbroken.store.history import Attempt, EndKind, History, SegmentEnd
from unbroken.store.layout import RunFolder
from unbroken.store.select import obstacle
from unbroken.system.clock import utc_now

logger = logging.getLogger(__name__)

PATIENCE = "UNBROKEN_PATIENCE_SECONDS"
PATIENCE_SECONDS = 600.0
REST_SECONDS = 15.0
# So much of the job's time is left for saying why it ends.
LAST_SECONDS = 60.0
LOOK_SECONDS = 0.5
# How often the job does what it does next to the segment's work.
AHEAD_SECONDS = 60.0
# The segment itself answers these; its job's first process has to outlive it.
IGNORED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGURG, signal.SIGUSR1, signal.SIGUSR2)
# Where Slurm writes what this process and its children print.
OWN_LOG = Path("/proc/self/fd/2")
# So much of what a command says at its end is looked at, and told.
_TAIL_BYTES = 8192
_LONGEST = 300


_received: set[int] = set()


def ignore_signals() -> None:
    """Ignore signals, which are for the segment; not by SIG_IGN, which it would inherit."""
    for number in IGNORED_SIGNALS:
        signal.signal(number, lambda number, _: _received.add(number))


def is_being_ended() -> bool:
    """Return True once Slurm ends this job: at its limit, by scancel, or for another job.  KillWait is left."""
    return signal.SIGTERM in _received


@dataclass(frozen=True)
class SegmentProcess:
    """The command that does a segment of a run in the job `job_id`."""

    folder: RunFolder
    segment: int
    job_id: str
    command: Sequence[str]

    def run(self, look_ahead: Callable[[], None] = lambda: None) -> tuple[int, SegmentEnd | None]:
        """Run the segment; return its exit code, and its end, None if nothing says it.

        `look_ahead` is called as by `follow`.  An attempt that ended before its work has its line in the history
        afterwards, if it can be written.
        """
        known, began_utc, give_up = len(self._lines()), utc_now(), give_up_at()
        while True:
            with NoteFile() as note:
                begins = OWN_LOG.stat().st_size
                code = self._follow(note, look_ahead)
                end = self._end(note, code, begins, known)
            is_missing = end is not None and end.kind is EndKind.UNAVAILABLE
            if end is None or not is_missing or time.monotonic() + rest_seconds() > give_up:
                break
            logger.info(f"{end.line()}; tried again for {give_up - time.monotonic():.0f} s more")
            time.sleep(rest_seconds())
        if end and end.kind in (EndKind.REFUSED, EndKind.UNAVAILABLE) and len(self._lines()) == known:
            with contextlib.suppress(OSError):
                note_before_work(self.folder, self.segment, end, started_utc=began_utc, slurm_job=self.job_id)
        return code, end

    def _follow(self, note: NoteFile, look_ahead: Callable[[], None]) -> int:
        environment = {**os.environ, **note.variable}
        child = subprocess.Popen(self.command, env=environment, stdin=subprocess.DEVNULL)
        return follow(child, lambda: note.has_begun, look_ahead, LOOK_SECONDS)

    def _end(self, note: NoteFile, code: int, begins: int, known: int) -> SegmentEnd | None:
        lines, said = self._lines()[known:], note.end
        worked = [line for line in lines if not line.kind.is_before_work]
        if note.has_begun or worked or (code == 0 and self.folder.record(self.segment).exists()):
            is_of_work = said is not None and not said.kind.is_before_work
            return said if is_of_work else next(reversed(worked), None)
        if said or lines:
            return said or lines[-1]
        missing = (_last_error(begins) if code else "") or obstacle(self.folder)
        how = f"ended with exit code {code}" if code else "did nothing"  # the record before never came
        message = f"the segment's process {how}{f': {missing}' if missing else ''}"
        return SegmentEnd(kind=EndKind.UNAVAILABLE, message=message)

    def _lines(self) -> list[Attempt]:
        try:
            attempts = History(self.folder.history).attempts()
        except OSError:
            return []
        return [attempt for attempt in attempts if attempt.slurm_job == self.job_id]


def note_before_work(folder: RunFolder, segment: int, end: SegmentEnd, **job: Any) -> Attempt | None:
    """Write the line of an attempt that ended before its work; return the attempt if it cannot be written.

    `job` are fields of the attempt.
    """
    last = next(reversed(History(folder.history).attempts()), None)
    where = {"slurm_node": os.environ.get("SLURMD_NODENAME", ""), "host": os.uname().nodename}
    line = endings.before_work(last, segment, end, **where, **job)
    return None if endings.note(folder, line) else line


def follow(
    child: subprocess.Popen[bytes],
    has_begun: Callable[[], bool],
    look_ahead: Callable[[], None],
    look_seconds: float,
) -> int:
    """Wait for a command; call `look_ahead` when its work has begun, if that is seen in time, and every minute then."""
    while not has_begun():
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(look_seconds)
    while True:
        look_ahead()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(AHEAD_SECONDS)


def give_up_at() -> float:
    """Return until when (time.monotonic()) what is missing now is waited for."""
    now = time.monotonic()
    give_up = now + float(os.environ.get(PATIENCE) or PATIENCE_SECONDS)
    job = job_around_us()
    if job is not None and job.end_here_unix is not None:
        give_up = min(give_up, now + job.end_here_unix - time.time() - LAST_SECONDS)
    return give_up


def rest_seconds() -> float:
    """Return how long to wait between two tries."""
    return min(REST_SECONDS, float(os.environ.get(PATIENCE) or PATIENCE_SECONDS) / 2)


def _last_error(begins: int) -> str:
    """Return the last error in Slurm's log after its first `begins` bytes, in one line; empty if there is none."""
    with contextlib.suppress(OSError), OWN_LOG.open("rb") as log:  # no file is no log
        log.seek(max(begins, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        errors = [number for number, line in enumerate(lines) if "rror" in line]
        return " ".join(lines[errors[-1] : errors[-1] + 2])[:_LONGEST] if errors else ""
    return ""
