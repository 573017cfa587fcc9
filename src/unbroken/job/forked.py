"""A child process that finds the modules of this one imported, which takes a new interpreter 0.15 s."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import IO, NoReturn

# As often as subprocess.Popen.wait() looks.
LOOK_SECONDS = 0.05


class Forked:
    """A function of this program in a child process; `wait`, `stderr` and the exit code are as of subprocess.Popen.

    The child answers `signals` as a new process does, whatever its parent makes of them.
    """

    def __init__(self, work: Callable[[], int], environment: Mapping[str, str], signals: Iterable[int]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        read_end, write_end = os.pipe()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _run_and_exit(work, environment, write_end, signals, mask)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(write_end)
        self.stderr: IO[bytes] = os.fdopen(read_end, "rb", buffering=0)
        self.returncode: int | None = None

    def wait(self, timeout: float) -> int:
        """Return the exit code, negative for a signal; subprocess.TimeoutExpired if it still runs then."""
        end = time.monotonic() + timeout
        pause = 0.0005
        while self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
                break
            left = end - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired([], timeout)
            pause = min(2 * pause, left, LOOK_SECONDS)
            time.sleep(pause)
        return self.returncode


def _run_and_exit(
    work: Callable[[], int], environment: Mapping[str, str], stderr: int, signals: Iterable[int], mask: Iterable[int]
) -> NoReturn:
    code = 1
    try:
        os.dup2(stderr, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ |= environment
        for number in signals:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        code = _code_of(work)
        atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _code_of(work: Callable[[], int]) -> int:
    """Return the exit code with which an interpreter would leave."""
    try:
        return work()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001  as an interpreter does
        traceback.print_exc()
    return 1
