"""DMTCP's programs by hand: a coordinator, a program under it, its images; for the stand-in and for the real one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.dmtcp_here import REAL
from support.workdir import until

from unbroken.engines.dmtcp.checkpoint import images_in
from unbroken.engines.dmtcp.programs import Programs

PATIENCE_SECONDS = 600
# Counts into a file that it keeps open, waits at some numbers until it may pass, and calls its end a failure.
COUNT = """
import os, sys, time
passes, (code, goal, ballast, *gates) = sys.argv[1], map(int, sys.argv[2:])
ballast = os.urandom(ballast)
file = open("numbers.txt", "w")
for n in range(1, goal + 1):
    print(n, file=file, flush=True)
    while n in gates and not os.path.exists(f"{passes}{n}"):
        time.sleep(0.01)
sys.exit(code)
"""


def count(goal: int, *gates: int, ballast_bytes: int = 0, code: int = 7, passes: str = "pass") -> list[str]:
    """The command; at a gate it waits for the file `pass<number>`."""
    return [sys.executable, "-c", COUNT, passes, *map(str, (code, goal, ballast_bytes, *gates))]


def numbers(goal: int) -> bytes:
    """What it leaves."""
    return b"".join(b"%d\n" % n for n in range(1, goal + 1))


class Play:
    """Everything below one folder; `close` ends whatever is left."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder = Programs(str(programs)), folder
        self.live = folder / "live"
        self.live.mkdir()
        self.started: list[subprocess.Popen[bytes]] = []
        self.port = 0
        self.said = folder
        self.coordinator: subprocess.Popen[bytes] | None = None

    @property
    def is_real(self) -> bool:
        return Path(self.programs.folder) == REAL

    @property
    def is_411(self) -> bool:
        return self.programs.version() == "4.1.1"

    @property
    def is_32(self) -> bool:
        return self.programs.version().startswith("3.2")

    @property
    def is_5(self) -> bool:
        return self.programs.version().startswith("5.")

    def start(self, command: Sequence[str], folder: Path | None = None, quiet: int = 1) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{len(self.started)}.log").open("wb")
        told = {"DMTCP_QUIET": str(quiet), "DMTCP_GZIP": "0"}
        with log:
            process = subprocess.Popen(
                command, cwd=folder or self.live, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **told}, start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def coordinate(self, name: str) -> Path:
        """A new coordinator; returns the folder for its images."""
        images = self.folder / name
        images.mkdir()
        port_file = self.folder / f"{name}.port"
        self.said = self.folder / f"{len(self.started)}.log"
        self.coordinator = self.start(self.programs.coordinator(port_file, images), self.folder, quiet=0)
        until(lambda: port_file.exists() and port_file.read_text().strip())
        self.port = int(port_file.read_text())
        return images

    def launch(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """As unbroken does it."""
        main = self.start(self.programs.launch(self.port, self.images("first"), [], command))
        until(lambda: self.is_running() or main.poll() is not None, PATIENCE_SECONDS)
        return main

    def launch_alone(self, command: Sequence[str], *options: str) -> subprocess.Popen[bytes]:
        """Without the shell around it."""
        words = self.programs.launch(self.port, self.images("first"), options, command)
        main = self.start([word for word in words[: words.index("sh")] if word != "--no-gzip"] + list(command))
        self.until_running()
        return main

    def images(self, name: str) -> Path:
        return self.folder / name

    def restart(self, images: Sequence[Path], name: str) -> subprocess.Popen[bytes]:
        return self.start(self.programs.restart(self.port, self.images(name), images))

    def ask(self, request: str) -> tuple[int, str]:
        answer = self.programs.ask(self.port, request)
        return answer.code, "\n".join(answer.lines)

    def is_running(self) -> bool:
        return "RUNNING=yes" in self.ask("--status")[1]

    def until_running(self) -> None:
        until(self.is_running, PATIENCE_SECONDS)

    def until_at(self, gate: int) -> None:
        until(lambda: self.counted() == gate, PATIENCE_SECONDS)

    def let_pass(self, gate: int) -> None:
        (self.live / f"pass{gate}").touch()

    def counted(self) -> int:
        path = self.live / "numbers.txt"
        return len(path.read_bytes().split(b"\n")) - 1 if path.exists() else 0

    def saved(self, main: subprocess.Popen[bytes], name: str) -> list[Path]:
        """Checkpoint and kill; the images, once everybody is gone."""
        self.ask("--kcheckpoint")
        main.wait(PATIENCE_SECONDS)
        assert self.coordinator is not None
        self.coordinator.wait(PATIENCE_SECONDS)
        return images_in(self.images(name))

    def close(self) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a restart that hangs has a child that computes for ever
            process.wait()
