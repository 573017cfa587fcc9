"""The child process: the one place where programs are started, asked to stop, and ended."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any

from unbroken.errors import SegmentError
from unbroken.program import guard
from unbroken.system import fs

# How long a program that answered, and was killed, may take to be gone; what it left is of no interest then.
LEAVING_SECONDS = 5.0
# A program that stops by its own clock begins so long before the request, at most a twentieth of its time.
LEAD_SECONDS = 1.0
LEAD_SHARE = 0.05
# srun and mpirun need a while to start the tasks, whose own clocks begin then.
LAUNCH_SECONDS = 15.0
LAUNCH_SHARE = 0.5


class Child:
    """A running program in its own session, so that a Ctrl-C at the terminal reaches us and not its workers.

    Between it and us stand two guards (`guard`), which see to it that nothing of it outlives us.
    """

    def __init__(self, guard: subprocess.Popen[bytes], life: int, told: int) -> None:
        self._guard, self._life, self._told = guard, life, told
        self._lock = threading.Lock()
        self._heard, self._is_over = b"", False
        self._hear(math.inf, lambda: b"\n" in self._heard)
        self._pid = self._number("pid")

    @property
    def pid(self) -> int:
        """Return the pid, 0 if the process could not be started; no other process gets it before `kill`."""
        return self._pid or 0

    @property
    def output(self) -> IO[bytes]:
        """Return what the program prints, of one that was started to be heard."""
        return self._guard.stdout or io.BytesIO()

    def wait(self, seconds: float) -> int | None:
        """Return the exit code (negative: the signal that ended it), or None if it still runs after `seconds`."""
        self._hear(seconds, lambda: self._number("code") is not None)
        code = self._number("code")
        return -signal.SIGKILL if code is None and self._is_over else code

    def end(self, seconds: float) -> bool:
        """Kill, and wait: True once nothing that it started is left, False if something still is after `seconds`."""
        self.kill()
        self._hear(seconds, lambda: False)
        if self._is_over:
            self._guard.wait()
        return self._is_over

    def terminate(self) -> None:
        """Send TERM to the main process alone, not to its workers."""
        self.send(signal.SIGTERM)

    def send(self, number: int, *, to_group: bool = False) -> None:
        """Send a signal to the main process, or to its workers too; no harm if none is left."""
        if self._is_killed or not self.pid:
            return
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if to_group else os.kill)(self.pid, number)

    def kill(self) -> None:
        """Kill all that descends from it, whatever session that is in; no harm if none is left."""
        with self._lock:
            if not self._is_killed:
                os.close(self._life)
                self._life = -1
                self._guard.send_signal(signal.SIGCONT)  # a guard that was stopped would not receive it

    @property
    def _is_killed(self) -> bool:
        return self._life < 0

    def _hear(self, seconds: float, is_enough: Callable[[], bool]) -> None:
        """Read what the guards say until that is enough, they are gone, or the time is up."""
        poll = select.poll()
        poll.register(self._told, select.POLLIN)
        give_up = time.monotonic() + max(seconds, 0.0)
        while not is_enough() and not self._is_over:
            left = give_up - time.monotonic()
            if not poll.poll(None if math.isinf(left) else max(left, 0.0) * 1000):
                return
            chunk = os.read(self._told, 4096)
            self._heard += chunk
            self._is_over = not chunk

    def _number(self, name: str) -> int | None:
        found = re.search(rf"^{name} (-?\d+)\n", self._heard.decode(), re.MULTILINE)
        return int(found[1]) if found else None

    def __del__(self) -> None:
        self.end(LEAVING_SECONDS)
        os.close(self._told)


class StopReason(Enum):
    """Name the reason why the program was asked to stop."""

    DEADLINE = "its time is up"
    WARNED = "a signal warned that the time limit is near"
    TAKEN_AWAY = "preempted or canceled"
    CTRL_C = "stopped by Ctrl-C"
    HUNG_UP = "its terminal was closed"
    STALLED = "it does not advance"

    @property
    def is_interruption(self) -> bool:
        """Return True if the machine is wanted back, which is not the same as time being up."""
        return self in {StopReason.TAKEN_AWAY, StopReason.CTRL_C, StopReason.HUNG_UP}


def lead_seconds(left: float, *, is_launched: bool) -> float:
    """Return how long before the stop request a program that watches its own clock must leave.

    `is_launched` where a launcher starts its tasks, which also kills them when it receives a signal to end.
    """
    launching = min(LAUNCH_SECONDS, LAUNCH_SHARE * left) if is_launched else 0.0
    return launching + min(LEAD_SECONDS, LEAD_SHARE * left)


@dataclass(frozen=True)
class Streams:
    """Descriptors for a program's input and outputs; the program gets copies of them."""

    stdin: int
    stdout: int
    stderr: int


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    folder: Path | None = None,
    streams: Streams | None = None,
) -> Child:
    """Start the program with `environment` added to ours; dies if we die.

    Both outputs are appended to `log` where no `streams` are given.  It runs in `folder`, in ours if there is none.
    Raise SegmentError if it cannot be started.
    """
    with fs.storage_errors(log), log.open("ab") as output:
        return _guarded(
            command,
            stdin=streams.stdin if streams else subprocess.DEVNULL,
            stdout=streams.stdout if streams else output,
            stderr=streams.stderr if streams else subprocess.STDOUT,
            env={**os.environ, **environment},
            cwd=folder,
        )


def _guarded(command: Sequence[str], **more: Any) -> Child:
    if shutil.which(command[0]) is None:
        raise SegmentError(f"cannot start {shlex.join(command)}: {command[0]} is not a program that can be found here")
    life, held = os.pipe()
    told, tells = os.pipe()
    words = [sys.executable, "-I", "-S", guard.__file__, str(life), str(tells), *command]
    try:
        process = subprocess.Popen(words, start_new_session=True, pass_fds=(life, tells), **more)
    except OSError:
        for descriptor in (held, told):
            os.close(descriptor)
        raise
    finally:
        for descriptor in (life, tells):
            os.close(descriptor)
    return Child(process, held, told)


@dataclass(frozen=True)
class Answer:
    """Hold the exit code and the output (stdout and stderr together) of a program that answers and ends."""

    code: int
    lines: list[str]


def ask(
    command: Sequence[str],
    folder: Path | None = None,
    told: str = "",
    seconds: float = threading.TIMEOUT_MAX,
    is_enough: Callable[[str], bool] = lambda line: False,
) -> Answer:
    """Run a program to its end, `told` as its input; ended early, with exit code 0, by a line that is enough.

    Raise SegmentError if it cannot be started, or gave no answer within `seconds`.
    """
    with tempfile.TemporaryFile() as words:
        words.write(told.encode())
        words.seek(0)
        program = _guarded(command, stdin=words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder)
    is_late = threading.Event()

    def end() -> None:
        is_late.set()  # before the kill, whose effects may show at once
        program.kill()

    clock = threading.Timer(seconds, end)
    clock.start()
    lines: list[str] = []
    try:
        with program.output as output:
            for line in output:
                lines.append(line.decode(errors="replace").rstrip("\n"))
                if is_enough(lines[-1]):
                    return Answer(0, lines)
        code = program.wait(math.inf) or 0
    finally:
        clock.cancel()
        program.end(LEAVING_SECONDS)
    if is_late.is_set():
        raise SegmentError(f"{shlex.join(command)}: no answer in {seconds:g} s; it was killed")
    return Answer(code, lines)


def with_modules(command: Sequence[str], modules: Sequence[str]) -> list[str]:
    """Return the command after these environment modules are loaded.

    They need a shell function, so a login shell loads them and then becomes the command; the words of the command are
    its arguments and never part of its text.
    """
    if not modules:
        return list(command)
    return ["bash", "-l", "-c", f'module load {shlex.join(modules)} && exec "$@"', "unbroken", *command]
