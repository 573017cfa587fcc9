"""The command of one segment inside its job on Slurm: started, followed, and told apart by how it ended.

What keeps it from its work and may pass by itself (a disk, a file that is being edited) is given some minutes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import IO

from unbroken.errors import UnbrokenError
from unbroken.runs import attempts as endings
from unbroken.runs.history import Attempt, History
from unbroken.runs.job_note import GIVE_UP, NoteFile
from unbroken.runs.layout import RunFolder
from unbroken.runs.lease import newest_claim
from unbroken.runs.obstacles import obstacle
from unbroken.runs.segment_end import EndKind, SegmentEnd
from unbroken.slurm.this_job import job_around_us
from unbroken.system.clock import utc_now

PATIENCE = "UNBROKEN_PATIENCE_SECONDS"
PATIENCE_SECONDS = 600.0
REST_SECONDS = 15.0
# So much of the job's time is left for saying why it ends.
LAST_SECONDS = 60.0
LOOK_SECONDS = 0.5
# The segment itself answers these; its job's first process has to outlive it.
IGNORED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGURG, signal.SIGUSR1, signal.SIGUSR2)
# So much of what a command says at its end is kept.
_TAIL_BYTES = 8192
_LONGEST = 300


_received: set[int] = set()


def ignore_signals() -> None:
    """Signals are left to the segment; not SIG_IGN, which it would inherit."""
    for number in IGNORED_SIGNALS:
        signal.signal(number, lambda number, _: _received.add(number))


def is_being_ended() -> bool:
    """True once Slurm has begun to end this job: at its limit, by scancel, or for another job.  KillWait is left."""
    return signal.SIGTERM in _received


@dataclass(frozen=True)
class SegmentProcess:
    """The command that does a segment of a run in the job `job_id`."""

    places: RunFolder
    segment: int
    job_id: str
    words: Sequence[str]
    tell: Callable[[str], None]

    def run(self, has_begun: Callable[[], None] = lambda: None) -> tuple[int, SegmentEnd | None]:
        """Run it; return its exit code, and its end, None if nothing says it.

        `has_begun` is called once its work begins, if that is seen in time.  An attempt that ended before its work has
        its line in the history afterwards, if it can be written.
        """
        give_up: float | None = None
        known = len(self._lines())
        token = self._token()
        began_utc = utc_now()
        while True:
            code, end, since = self._once(has_begun, known, token, give_up)
            if end is None or end.kind is not EndKind.UNAVAILABLE:
                break
            give_up = give_up or give_up_at(since)
            if time.monotonic() + rest_seconds() > give_up:
                break
            self.tell(f"{end.line()}; tried again for {give_up - time.monotonic():.0f} s more")
            time.sleep(rest_seconds())
        if end and end.kind in (EndKind.REFUSED, EndKind.UNAVAILABLE) and len(self._lines()) == known:
            self._note(end, began_utc)
        return code, end

    def _once(
        self, has_begun: Callable[[], None], known: int, token: int, give_up: float | None
    ) -> tuple[int, SegmentEnd | None, float | None]:
        """Run it once; return also since when (time.monotonic()) it has waited for what it misses, if it did."""
        with NoteFile() as note:
            code, tail = _follow(self.words, note, has_begun, give_up)
            begun, said, since = note.has_begun, note.end, note.since
        lines = self._lines()[known:]
        worked = [line for line in lines if not line.kind.is_before_work]
        if begun or worked or (code == 0 and self.places.record(self.segment).exists()):
            is_of_work = said is not None and not said.kind.is_before_work
            return code, said if is_of_work else next(reversed(worked), None), None
        if said or lines:
            return code, said or lines[-1], since
        if self._token() > token:
            return code, None, None  # killed as soon as it had the run: the next job finds that out, and notes it
        missing = tail or obstacle(self.places)
        how = f"ended with exit code {code}" if code else "did nothing"  # it waited in vain for the record before
        message = f"the segment's process {how}{f': {missing}' if missing else ''}"
        return code, SegmentEnd(kind=EndKind.UNAVAILABLE, message=message), None

    def _token(self) -> int:
        """The number of this job's newest claim of the run; 0 if the newest one is of somebody else."""
        with contextlib.suppress(OSError, UnbrokenError):
            claim = newest_claim(self.places.lease)
            if claim is not None and claim.slurm_job == self.job_id:
                return claim.token
        return 0

    def _lines(self) -> list[Attempt]:
        try:
            attempts = History(self.places.history).attempts()
        except OSError:
            return []
        return [attempt for attempt in attempts if attempt.slurm_job == self.job_id]

    def _note(self, end: SegmentEnd, began_utc: str) -> None:
        with contextlib.suppress(OSError):
            last = next(reversed(History(self.places.history).attempts()), None)
            node = os.environ.get("SLURMD_NODENAME", "")
            end = replace(end, message=end.message.removeprefix(f"runs.{self.places.name}: "))
            job = {"started_utc": began_utc, "slurm_job": self.job_id, "slurm_node": node, "host": os.uname().nodename}
            endings.note(self.places, endings.before_work(last, self.segment, end, **job), self.tell)


def give_up_at(since: float | None = None) -> float:
    """Until when (time.monotonic()) what is missing is waited for; it has been, `since` then."""
    seconds = float(os.environ.get(PATIENCE) or PATIENCE_SECONDS)
    now = time.monotonic()
    give_up = (now if since is None else since) + seconds
    job = job_around_us()
    if job is not None and job.end_here_unix is not None:
        give_up = min(give_up, now + job.end_here_unix - time.time() - LAST_SECONDS)
    return give_up


def rest_seconds() -> float:
    """How long to wait between two tries."""
    return min(REST_SECONDS, float(os.environ.get(PATIENCE) or PATIENCE_SECONDS) / 2)


def _follow(
    words: Sequence[str], note: NoteFile, has_begun: Callable[[], None], give_up: float | None
) -> tuple[int, str]:
    """Return the exit code of a command, and its last words."""
    environment = {**os.environ, **note.variable}
    if give_up is not None:
        environment[GIVE_UP] = str(give_up)
    child = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    tail = Tail(child.stderr)
    while not note.has_begun:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(LOOK_SECONDS)
            break
    else:
        has_begun()
    return child.wait(), tail.last_words()


class Tail:
    """Passes on what a command says, and keeps the end of it."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        self._stream, self._kept = stream, b""
        self._thread = threading.Thread(target=self._pass_on, name="tail", daemon=True)
        self._thread.start()

    def text(self) -> str:
        """All that is kept of it."""
        self._thread.join(1.0)  # a process left behind may hold it open
        return self._kept.decode(errors="replace")

    def last_words(self) -> str:
        """The last error in it, in one line; empty if there is none."""
        lines = [line.strip() for line in self.text().splitlines() if line.strip()]
        places = [place for place, line in enumerate(lines) if "rror" in line]
        if not places:
            return ""
        return " ".join(lines[places[-1] : places[-1] + 2])[:_LONGEST]

    def _pass_on(self) -> None:
        if self._stream is None:
            return
        with self._stream:
            while chunk := os.read(self._stream.fileno(), 65536):
                self._kept = (self._kept + chunk)[-_TAIL_BYTES:]
                with contextlib.suppress(OSError):
                    os.write(2, chunk)
