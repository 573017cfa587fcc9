"""The child process: the one place where programs are started, told to leave, and ended."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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

    def send(self, number: int, to_group: bool = False) -> None:
        """A signal to the main process, or to its workers too; no harm if nobody is left."""
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if to_group else os.kill)(self.pid, number)

    def kill(self) -> None:
        """KILL to the whole group, workers included; no harm if nobody is left."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def start(command: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path | None = None) -> Child:
    """Starts the program with `environment` added to ours, both outputs appended to `log`; dies if we die.

    It runs in `folder`, in ours if there is none.  SegmentError if it cannot be started.
    """
    _must_be_found(command)
    launcher = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), *command]
    with fs.storage_errors(log), log.open("ab") as output:
        process = subprocess.Popen(
            launcher,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
            cwd=folder,
        )
    return Child(process)


@dataclass(frozen=True)
class Answer:
    """What a program that answers and leaves has said (both outputs together), and its exit code."""

    code: int
    lines: list[str]


def ask(
    command: Sequence[str],
    folder: Path | None = None,
    told: str = "",
    seconds: float = threading.TIMEOUT_MAX,
    is_enough: Callable[[str], bool] = lambda line: False,
) -> Answer:
    """Runs a program to its end, `told` as its input; ended early, with exit code 0, by a line that is enough.

    SegmentError if it cannot be started, or gave no answer within `seconds`.
    """
    _must_be_found(command)
    launcher = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), *command]
    with tempfile.TemporaryFile() as words:
        words.write(told.encode())
        words.seek(0)
        process = subprocess.Popen(
            launcher, stdin=words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, cwd=folder
        )
    program = Child(process)
    is_late = threading.Event()

    def end() -> None:
        is_late.set()  # before the kill, of whose effects we may hear at once
        program.kill()

    clock = threading.Timer(seconds, end)
    clock.start()
    try:
        lines, has_enough = _heard(process, is_enough)
        if has_enough:
            program.kill()
        code = process.wait()
    finally:
        clock.cancel()
        program.kill()
    if is_late.is_set():
        raise SegmentError(f"{shlex.join(command)}: no answer in {seconds:g} s; it was killed")
    return Answer(0 if has_enough else code, lines)


def _heard(process: subprocess.Popen[bytes], is_enough: Callable[[str], bool]) -> tuple[list[str], bool]:
    """Its lines, and whether they were enough before its end."""
    lines: list[str] = []
    with process.stdout or io.BytesIO() as output:
        for line in output:
            lines.append(line.decode(errors="replace").rstrip("\n"))
            if is_enough(lines[-1]):
                return lines, True
    return lines, False


def _must_be_found(command: Sequence[str]) -> None:
    if shutil.which(command[0]) is None:
        raise SegmentError(f"cannot start {shlex.join(command)}: {command[0]} is not a program that can be found here")


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
