"""Ctrl-C at a driver whose segments run on this machine: they save and leave, also where only the driver is told.

Snakemake waits for its jobs after it, and passes nothing on: a terminal tells all processes in front of it, but `kill
-INT` or a supervisor tells the driver alone.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import psutil

from unbroken.runs import driver_start
from unbroken.runs.checkpoint import describe_done
from unbroken.runs.layout import RunFolder
from unbroken.runs.lease import newest_claim
from unbroken.runs.run import Run
from unbroken.runs.store import Store
from unbroken.system.clock import age_seconds, duration

# How Snakemake calls the copy of a script that it starts.
_SCRIPT = re.compile(r"/\.snakemake/scripts/[^/]*segment\.py$")


def listen(runs: Sequence[Run], tell: Callable[[str], None]) -> None:
    """From now on: the first Ctrl-C saves, the second says what a third one would lose."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, CtrlC(runs, tell).hear)


class CtrlC:
    """Counts them."""

    def __init__(self, runs: Sequence[Run], tell: Callable[[str], None]) -> None:
        self._runs = runs
        self._tell = tell
        self._heard = 0

    def hear(self, number: int, frame: FrameType | None) -> None:
        """The handler; KeyboardInterrupt at the first one, as without it."""
        self._heard += 1
        if self._heard == 1:
            _signal_segments(signal.SIGINT)
            raise KeyboardInterrupt
        if self._heard == 2:
            # The signal may have come while this thread held the lock of a log.
            threading.Thread(target=self._warn, daemon=True).start()
        else:
            _signal_segments(signal.SIGKILL)

    def _warn(self) -> None:
        for run in self._runs:
            if _is_ours(run):
                newest = next(reversed(Store(RunFolder(run.name).checkpoints).readable()), None)
                kept = "it has no checkpoint yet"
                if newest is not None:
                    ago = duration(age_seconds(newest.passport.created_utc))
                    kept = f"its newest checkpoint has {describe_done(newest)}, {ago} ago"
                self._tell(
                    f"{run.name}: still saving; {kept}; Ctrl-C once more kills it, and what came after that is lost"
                )


def _is_ours(run: Run) -> bool:
    """True if a segment that this driver started holds the run."""
    claim = newest_claim(RunFolder(run.name).lease)
    return claim is not None and not claim.released_utc and claim.start == driver_start.current()


def _signal_segments(number: signal.Signals) -> None:
    """To those below this process; one that has heard it from the terminal as well stops once."""
    for pid in list(_segments()):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _segments() -> Iterator[int]:
    for child in psutil.Process().children(recursive=True):
        try:
            words = child.cmdline()
        except psutil.Error:  # it left in this moment
            continue
        if len(words) > 1 and _SCRIPT.search(words[1]):
            yield child.pid
