"""A job: one attempt at one segment as the workflow hands it to a script, its log and its signals, and how it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from unbroken.errors import InterruptedSegment, PartialSegment, SegmentError, UnbrokenError
from unbroken.job import end_note
from unbroken.program.contract import EXIT_PAUSED
from unbroken.program.leaving import StopReason
from unbroken.runs import driver_start
from unbroken.runs.identity import IdentityKeys
from unbroken.runs.layout import RunFolder
from unbroken.runs.run import RunSpec
from unbroken.slurm.signal_relay import SignalListener
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

    def at_work(self) -> Job:
        """Return the job with a log of its own, which an attempt has from the beginning of its work on."""
        return self if self.own_log else replace(self, own_log=_second_name(self.log))

    def tell(self, line: str) -> None:
        """Write one line of the segment's own into its log and to the driver's screen."""
        text = f"unbroken {utc_now()} {self.run.name} segment {self.segment}: {line}\n"
        # A file's name may hold bytes that are no text.
        text = text.encode(errors="backslashreplace").decode()
        # A driver that is gone has left a broken pipe, and the work continues without it.
        if not driver_start.is_screen_taken():
            with contextlib.suppress(OSError):
                print(text, end="", file=sys.stderr, flush=True)
        self._append(text)

    def tell_traceback(self, error: BaseException) -> None:
        """Write into the log alone where in the code an error came from."""
        self._append("".join(traceback.format_exception(error)).encode(errors="backslashreplace").decode())

    @contextlib.contextmanager
    def engine_errors(
        self, refused: Callable[[str], SegmentError], of_engine: Container[int | None] = ()
    ) -> Iterator[None]:
        """Turn any other error than an UnbrokenError or OSError into what `refused` makes of its one line.

        An engine may be a third-party package, and a mistake in it must not end the process without a line of
        history.  Its traceback is in the log.  `of_engine` are the `errno` of an OSError that are its mistake too.
        """
        try:
            yield
        except UnbrokenError:
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, OSError) and error.errno not in of_engine:
                raise
            self.tell_traceback(error)
            raise refused(f"{type(error).__name__}: {error}") from error

    def _append(self, text: str) -> None:
        # A full disk must not hide the line that says so.
        with contextlib.suppress(OSError):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("a") as log:
                log.write(text)


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


def main(snakemake: Any, segment: Callable[[Job], object]) -> None:
    """Run a script's public entry for Snakemake; a UnbrokenError becomes its line and exit code 1.

    Where Slurm gave the job less time than a segment, and it has used that, the exit code is 85.
    """
    assignment: Assignment = snakemake.params.assignment
    attempt = int(snakemake.resources.get("attempt", 1))
    job = Job(assignment.run, assignment.keys, int(snakemake.wildcards.segment), attempt)
    try:
        segment(job)
    except PartialSegment as end:
        job.tell(str(end))
        sys.exit(EXIT_PAUSED)
    except UnbrokenError as error:
        end_note.tell_refused(error)
        job.tell(f"stopped: {error}")
        job = replace(job, own_log=_log_of_newest_work(job.log))
        job.tell(f"log: {job.log}; state of all runs: unbroken status")
        sys.exit(1)


def _log_of_newest_work(log: Path) -> Path:
    """Return the log of the newest attempt that worked; append what this one has logged if it did not work.

    The other one gets the segment's name too, which is the one that people open.
    """
    newest, draft = _names_of_work(log)[0], log.with_suffix(".draft")
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


def _second_name(log: Path) -> Path:
    """Give the segment's log a second name, `<segment>.<attempt>.log`, and return that; the first where it cannot be.

    Snakemake removes the first name before the next attempt, and what a crash said must still be there to be read.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    newest, following = _names_of_work(log)
    with contextlib.suppress(OSError):
        if newest is not None and newest.samefile(log):
            return newest
        os.link(log, following)
        return following
    return log


def _names_of_work(log: Path) -> tuple[Path | None, Path]:
    """Return the log of the newest attempt at the segment that worked, and the name for that of the next one."""
    found = (path.suffixes[0][1:] for path in log.parent.glob(f"{log.stem}.*.log"))
    numbers = [int(number) for number in found if number.isdecimal()]
    newest = max(numbers, default=0)
    return log.with_suffix(f".{newest}.log") if numbers else None, log.with_suffix(f".{newest + 1}.log")
