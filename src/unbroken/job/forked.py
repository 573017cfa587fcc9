"""A child process that finds the modules of this one imported, which takes a new interpreter 0.15 s."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing import get_context
from typing import IO

# As often as subprocess.Popen.wait() looks.
LOOK_SECONDS = 0.05


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
            sys.exit(work())

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
            self._process.join(min(left, LOOK_SECONDS))  # a process that it has forked may keep that waiting
        return code
