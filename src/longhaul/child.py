"""The child process: the one place where programs are started, told to leave, and ended."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from longhaul import fs, launch
from longhaul.errors import SegmentError


class Child:
    """A running program in its own session, so that a Ctrl-C at the terminal reaches us and not its workers."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, seconds: float) -> int | None:
        """The exit code (negative: the signal that ended it), or None if it still runs after `seconds`."""
        try:
            return self._process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """TERM to the main process alone: its workers must not be told."""
        self._process.terminate()

    def kill(self) -> None:
        """KILL to the whole group, workers included; no harm if nobody is left."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def start(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Child:
    """Starts the program with `environment` added to ours, both outputs appended to `log`; dies if we die.

    SegmentError if it cannot be started.
    """
    if shutil.which(command[0]) is None:
        raise SegmentError(f"cannot start {shlex.join(command)}: {command[0]} is not a program that can be found here")
    launcher = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), *command]
    with fs.storage_errors(log), log.open("ab") as output:
        process = subprocess.Popen(
            launcher,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    return Child(process)


def entered(command: Sequence[str], modules: Sequence[str], prefix: Sequence[str]) -> list[str]:
    """The command inside the run's environment modules and its container or conda prefix.

    Modules need a shell function, so a login shell loads them and then becomes the command; the words of the command
    are its arguments and never part of its text.
    """
    inner = [*prefix, *command]
    if not modules:
        return inner
    text = f'module load {shlex.join(modules)} && exec "$@"'
    return ["bash", "-l", "-c", text, "longhaul", *inner]
