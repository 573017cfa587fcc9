"""Ctrl-C at a driver whose segments run on this machine: they save and leave, also where only the driver gets it.

Snakemake waits for its jobs after it, and passes nothing on: a terminal signals all processes in front of it, but `kill
-INT` or a supervisor the driver alone.
"""

from __future__ import annotations

import logging
import re
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

import psutil

from unbroken.store import driver_start
from unbroken.store.checkpoint import describe_done
from unbroken.store.checkpoints import Store
from unbroken.store.layout import RunFolder
from unbroken.store.lease import newest_claim
from unbroken.store.run import RunSpec
from unbroken.system.clock import age_seconds, duration

logger = logging.getLogger(__name__)
# How Snakemake calls the copy of a script that it starts.
_SCRIPT = re.compile(r"/\.snakemake/scripts/[^/]*segment\.py$")


def listen(runs: Sequence[RunSpec]) -> None:
    """Let the first Ctrl-C save, the second say what a third one would lose, and the third kill."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, CtrlC(runs).hear)


def was_heard() -> bool:
    """Return True if a Ctrl-C has come since `listen`."""
    owner = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return isinstance(owner, CtrlC) and owner.heard > 0


class CtrlC:
    """A handler of SIGINT that counts."""

    def __init__(self, runs: Sequence[RunSpec]) -> None:
        self._runs, self.heard = runs, 0

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Handle one Ctrl-C; raise KeyboardInterrupt at the first, as without this handler."""
        self.heard += 1
        if self.heard == 1:
            _signal_segments(signal.SIGINT)
            raise KeyboardInterrupt
        if self.heard == 2:
            # The signal may have come while this thread held the lock of a log.
            threading.Thread(target=self._warn, daemon=True).start()
        else:
            _signal_segments(signal.SIGKILL)

    def _warn(self) -> None:
        for run in filter(_is_ours, self._runs):
            newest = next(reversed(Store(RunFolder(run.name).checkpoints).readable()), None)
            kept = "it has no checkpoint yet"
            if newest is not None:
                ago = duration(age_seconds(newest.passport.created_utc))
                kept = f"its newest checkpoint has {describe_done(newest)}, {ago} ago"
            lost = "Ctrl-C once more kills it, and what came after that is lost"
            logger.warning(f"{run.name}: still saving; {kept}; {lost}")


def _is_ours(run: RunSpec) -> bool:
    """Return True if a segment that this driver started holds the run."""
    claim = newest_claim(RunFolder(run.name).lease)
    return claim is not None and not claim.released_utc and claim.start == driver_start.current()


def _signal_segments(number: signal.Signals) -> None:
    """Signal the segments below this process; one that got the signal from the terminal as well stops once."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it left in this moment
            words = child.cmdline()
            if len(words) > 1 and _SCRIPT.search(words[1]):
                child.send_signal(number)
