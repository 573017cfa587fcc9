"""The command of one segment inside its job on Slurm: started, followed, and told apart by how it ended.

What keeps it from its work and may pass by itself (a disk, a file that is being edited) is given some minutes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import IO, Any

from unbroken.errors import UnbrokenError
from unbroken.job.end_note import GIVE_UP, NoteFile
from unbroken.runs import attempts as endings
from unbroken.runs.before_work import obstacle
from unbroken.runs.history import Attempt, History
from unbroken.runs.layout import RunFolder
from unbroken.runs.lease import newest_claim
from unbroken.runs.segment_end import EndKind, SegmentEnd
from unbroken.slurm.this_job import job_around_us
from unbroken.system.clock import utc_now
from unbroken.system.log import lines_to

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
# So much of what a command says at its end is kept.
_TAIL_BYTES = 8192
_LONGEST = 300
# As often as subprocess.Popen.wait() looks.
WAITED_SECONDS = 0.05


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
    """The command, or the function of this program, that does a segment of a run in the job `job_id`."""

    folder: RunFolder
    segment: int
    job_id: str
    command: Sequence[str] | Callable[[], int]
    log: Callable[[str], None]

    def run(self, look_ahead: Callable[[], None] = lambda: None) -> tuple[int, SegmentEnd | None]:
        """Run the segment; return its exit code, and its end, None if nothing says it.

        `look_ahead` is called as by `follow`.  An attempt that ended before its work has its line in the history
        afterwards, if it can be written.
        """
        give_up: float | None = None
        known, token, began_utc = len(self._lines()), self._token(), utc_now()
        while True:
            with NoteFile() as note:
                code, last_error = self._follow(note, look_ahead, give_up)
                end, since = self._end(note, code, known, token, last_error), note.since
            if end is None or end.kind is not EndKind.UNAVAILABLE:
                break
            give_up = give_up or give_up_at(since)
            if time.monotonic() + rest_seconds() > give_up:
                break
            self.log(f"{end.line()}; tried again for {give_up - time.monotonic():.0f} s more")
            time.sleep(rest_seconds())
        if end and end.kind in (EndKind.REFUSED, EndKind.UNAVAILABLE) and len(self._lines()) == known:
            self._note(end, began_utc)
        return code, end

    def _follow(self, note: NoteFile, look_ahead: Callable[[], None], give_up: float | None) -> tuple[int, str]:
        """Run the command once; return its exit code, and the last error that it printed."""
        waits = {} if give_up is None else {GIVE_UP: str(give_up)}
        child = self._start({**note.variable, **waits})
        said = bytearray()
        tail = threading.Thread(target=_pass_on, args=(child.stderr, said), name="tail", daemon=True)
        tail.start()
        code = follow(child, lambda: note.has_begun, look_ahead, LOOK_SECONDS)
        tail.join(1.0)  # a process left behind may hold it open
        return code, _last_error(said.decode(errors="replace"))

    def _start(self, variables: Mapping[str, str]) -> subprocess.Popen[bytes] | Forked:
        if callable(self.command):
            return Forked(self.command, variables, IGNORED_SIGNALS)
        environment = {**os.environ, **variables}
        return subprocess.Popen(self.command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def _end(self, note: NoteFile, code: int, known: int, token: int, last_error: str) -> SegmentEnd | None:
        lines, said = self._lines()[known:], note.end
        worked = [line for line in lines if not line.kind.is_before_work]
        if note.has_begun or worked or (code == 0 and self.folder.record(self.segment).exists()):
            is_of_work = said is not None and not said.kind.is_before_work
            return said if is_of_work else next(reversed(worked), None)
        if said or lines:
            return said or lines[-1]
        if self._token() > token:
            return None  # killed as soon as it had the run: the next job finds that out, and notes it
        missing = last_error or obstacle(self.folder)
        how = f"ended with exit code {code}" if code else "did nothing"  # the record before never came
        message = f"the segment's process {how}{f': {missing}' if missing else ''}"
        return SegmentEnd(kind=EndKind.UNAVAILABLE, message=message)

    def _token(self) -> int:
        """Return the number of this job's newest claim of the run; 0 if the newest one is of another job."""
        with contextlib.suppress(OSError, UnbrokenError):
            claim = newest_claim(self.folder.lease)
            if claim is not None and claim.slurm_job == self.job_id:
                return claim.token
        return 0

    def _lines(self) -> list[Attempt]:
        try:
            attempts = History(self.folder.history).attempts()
        except OSError:
            return []
        return [attempt for attempt in attempts if attempt.slurm_job == self.job_id]

    def _note(self, end: SegmentEnd, began_utc: str) -> None:
        node = os.environ.get("SLURMD_NODENAME", "")
        job = {"started_utc": began_utc, "slurm_job": self.job_id, "slurm_node": node, "host": os.uname().nodename}
        with contextlib.suppress(OSError):
            note_before_work(self.folder, self.segment, end, self.log, **job)


def note_before_work(
    folder: RunFolder, segment: int, end: SegmentEnd, log: Callable[[str], None], **job: Any
) -> Attempt | None:
    """Write the line of an attempt that ended before its work; return the attempt if it cannot be written.

    `job` are fields of the attempt.
    """
    line = endings.before_work(next(reversed(History(folder.history).attempts()), None), segment, end, **job)
    with lines_to(log):
        return None if endings.note(folder, line) else line


def follow(
    child: subprocess.Popen[bytes] | Forked,
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


def give_up_at(since: float | None = None) -> float:
    """Return until when (time.monotonic()) what is missing is waited for; it has been, `since` then."""
    seconds = float(os.environ.get(PATIENCE) or PATIENCE_SECONDS)
    now = time.monotonic()
    give_up = (now if since is None else since) + seconds
    job = job_around_us()
    if job is not None and job.end_here_unix is not None:
        give_up = min(give_up, now + job.end_here_unix - time.time() - LAST_SECONDS)
    return give_up


def rest_seconds() -> float:
    """Return how long to wait between two tries."""
    return min(REST_SECONDS, float(os.environ.get(PATIENCE) or PATIENCE_SECONDS) / 2)


def _pass_on(stream: IO[bytes], kept: bytearray) -> None:
    """Pass on what a command prints, and keep the end of it."""
    with stream:
        while chunk := os.read(stream.fileno(), 65536):
            kept += chunk
            del kept[:-_TAIL_BYTES]
            with contextlib.suppress(OSError):
                os.write(2, chunk)


def _last_error(said: str) -> str:
    """Return the last error in it, in one line; empty if there is none."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if "rror" in line]
    return " ".join(lines[errors[-1] : errors[-1] + 2])[:_LONGEST] if errors else ""


# --- a child process that finds the modules of this one imported, which takes a new interpreter 0.15 s ---


class Forked:
    """A function of this program in a child process; `wait`, `stderr` and the exit code are as of subprocess.Popen.

    The child answers `signals` as a new process does, whatever its parent makes of them.
    """

    def __init__(self, work: Callable[[], int], environment: Mapping[str, str], signals: Iterable[int]) -> None:
        read_end, write_end = os.pipe()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

        def run() -> None:
            os.close(read_end)  # else a pipe whose reader was killed would fill up, and never break
            os.dup2(write_end, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.environ |= environment
            for number in signals:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            try:
                sys.exit(work())
            finally:
                atexit._run_exitfuncs()  # which no fork of multiprocessing calls

        self._process = get_context("fork").Process(target=run)
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(write_end)
        self.pid = self._process.pid or 0
        self.stderr: IO[bytes] = os.fdopen(read_end, "rb", buffering=0)

    def wait(self, timeout: float) -> int:
        """Return the exit code, negative for a signal; subprocess.TimeoutExpired if it still runs then."""
        end = time.monotonic() + timeout
        while (code := self._process.exitcode) is None:
            left = end - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired([], timeout)
            self._process.join(min(left, WAITED_SECONDS))  # a process that it has forked may keep that waiting
        return code
