"""A job: one attempt at one segment as the workflow hands it to a script, its signals, its log, and how it ends.

The log `logs/<run>/<segment>.log` is the newest one, and also has the name `<segment>.<attempt>.log`: Snakemake removes
the first name before the next attempt, and what a crash said must still be there to be read.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from unbroken.errors import InterruptedSegment, PartialSegment, UnbrokenError
from unbroken.job import end_note
from unbroken.program.contract import EXIT_PAUSED
from unbroken.program.leaving import StopReason
from unbroken.slurm.signal_relay import SignalListener
from unbroken.store import driver_start
from unbroken.store.layout import RunFolder
from unbroken.store.run import IdentityKeys, RunSpec
from unbroken.system.clock import utc_now

# URG: Slurm's early warning, see profiles/slurm.  USR1: what `sbatch --signal` scripts are used to.
WARNINGS = {signal.SIGURG, signal.SIGUSR1}
# TERM: preemption or the limit itself.  HUP: the terminal is closed, the connection lost.
INTERRUPTIONS = {
    signal.SIGTERM: StopReason.TAKEN_AWAY,
    signal.SIGINT: StopReason.CTRL_C,
    signal.SIGHUP: StopReason.HUNG_UP,
}


@dataclass(frozen=True)
class Assignment:
    """Hold what the plan gives to every segment of one run."""

    run: RunSpec
    keys: IdentityKeys


@dataclass(frozen=True)
class Job:
    """One attempt at a segment; `driver_attempt` counts within one call of snakemake, from 1."""

    run: RunSpec
    keys: IdentityKeys
    segment: int
    driver_attempt: int
    base: Path = Path()
    own_log: Path | None = None
    store: Path | None = None  # of a run of `unbroken exec`

    @property
    def places(self) -> RunFolder:
        return RunFolder(self.run.name, self.base, self.store)

    @property
    def log(self) -> Path:
        """Return where this attempt writes: the segment's log unless it has one of its own."""
        return self.own_log or self.places.log(self.segment)


class Alarm:
    """Count these signals inside the `with` block, where they no longer end the process.

    Those that Slurm sends to the job but that do not reach this process count too.
    """

    def __init__(self) -> None:
        self.heard: list[signal.Signals] = []
        self._listener = SignalListener(sorted(WARNINGS | INTERRUPTIONS.keys()), self.heard.append)
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Alarm:
        for number in WARNINGS | INTERRUPTIONS.keys():
            if signal.getsignal(number) is signal.SIG_IGN:
                continue  # it was asked for, such as by nohup
            self._before[number] = signal.signal(number, self._hear)
        self._listener.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.__exit__()
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    @property
    def interruption(self) -> StopReason | None:
        """Return why the machine is wanted back, by the first signal that says so; None if it is not."""
        return next((INTERRUPTIONS[number] for number in self.heard if number in INTERRUPTIONS), None)

    def leave_if_heard(self, run: str, meanwhile: str) -> None:
        """Raise InterruptedSegment if a signal has come."""
        if self.heard:
            raise InterruptedSegment(f"stopped by a signal ({self.heard[-1].name}) while {meanwhile}", run=run)

    def rest(self, seconds: float, run: str, meanwhile: str) -> None:
        """Wait, and leave if a signal asks for it."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.leave_if_heard(run, meanwhile)
            time.sleep(min(left, 0.2))

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.heard.append(signal.Signals(number))


# --- the log ---


class SegmentLog:
    """Write lines to the driver's screen and into the log of a job's attempt, which may change while it is open."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, line: str) -> None:
        """Write one line with the time and the segment."""
        text = f"unbroken {utc_now()} {self.job.run.name} segment {self.job.segment}: {line}\n"
        # A file's name may hold bytes that are no text.
        text = text.encode(errors="backslashreplace").decode()
        # A driver that is gone has left a broken pipe, and the work continues without it.
        if not driver_start.is_screen_taken():
            with suppress(OSError):
                print(text, end="", file=sys.stderr, flush=True)
        append(self.job.log, text)

    def begin_work(self) -> Job:
        """Give the attempt a log of its own, from the beginning of its work on; return its job."""
        if self.job.own_log is None:
            self.job = replace(self.job, own_log=_own_name(self.job.log))
        return self.job


def append(log: Path, text: str) -> None:
    """Append to a log; a full disk must not hide the line that says so."""
    with suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            file.write(text)


def append_traceback(log: Path, error: BaseException) -> None:
    """Append where in the code an error came from."""
    append(log, "".join(traceback.format_exception(error)).encode(errors="backslashreplace").decode())


def newest_work(log: Path) -> Path:
    """Return the log of the newest attempt that worked, with the lines of this one added if it did not work.

    The other one gets the segment's name too, which is the one that people open.
    """
    newest, draft = _names(log)[0], log.with_suffix(".draft")
    try:
        if newest is None or newest.samefile(log):
            return newest or log
        with newest.open("ab") as end, log.open("rb") as start:
            shutil.copyfileobj(start, end)
        draft.unlink(missing_ok=True)
        os.link(newest, draft)
        os.replace(draft, log)
    except OSError:  # the messages are on the screen
        return log
    return newest


def _own_name(log: Path) -> Path:
    """Give the segment's log its second name, and return that; the first where it cannot be."""
    with suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        newest, following = _names(log)
        if newest is not None and newest.samefile(log):
            return newest
        os.link(log, following)
        return following
    return log


def _names(log: Path) -> tuple[Path | None, Path]:
    """Return the log of the newest attempt at the segment that worked, and the name for that of the next one."""
    found = (path.suffixes[0][1:] for path in log.parent.glob(f"{log.stem}.*.log"))
    numbers = [int(number) for number in found if number.isdecimal()]
    newest = max(numbers, default=0)
    return log.with_suffix(f".{newest}.log") if numbers else None, log.with_suffix(f".{newest + 1}.log")


# --- the script ---


def main(snakemake: Any, segment: Callable[[Job], object]) -> None:
    """Run a script's public entry for Snakemake; a UnbrokenError becomes its line and exit code 1.

    Where Slurm gave the job less time than a segment, and it has used that, the exit code is 85.
    """
    assignment: Assignment = snakemake.params.assignment
    attempt = int(snakemake.resources.get("attempt", 1))
    job = Job(assignment.run, assignment.keys, int(snakemake.wildcards.segment), attempt)
    log = SegmentLog(job)
    try:
        segment(job)
    except PartialSegment as end:
        log.write(str(end))
        sys.exit(EXIT_PAUSED)
    except UnbrokenError as error:
        end_note.tell_refused(error)
        log.write(f"stopped: {error}")
        log.job = replace(job, own_log=newest_work(job.log))
        log.write(f"log: {log.job.log}; state of all runs: unbroken status")
        sys.exit(1)
