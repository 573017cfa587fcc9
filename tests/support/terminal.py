"""A terminal of a given size, with what a person would see on it."""

import fcntl
import itertools
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyte

PATIENCE_SECONDS = 600.0


class Terminal:
    """A program that runs in a terminal, as the first of its session; leaving the block ends it."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], columns: int = 80, lines: int = 24
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, lines, history=10_000)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        kept = {key: value for key, value in environment.items() if key not in {"COLUMNS", "LINES"}}
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *command],
            cwd=folder,
            env={"TERM": "xterm-256color", **kept},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._master)

    @property
    def shown(self) -> list[str]:
        """The lines on the screen, without those that are empty at its end."""
        lines = [line.rstrip() for line in self._screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> list[str]:
        """What has scrolled out of sight, then what is on the screen."""
        above = ["".join(line[at].data for at in range(self._screen.columns)) for line in self._screen.history.top]
        return [line.rstrip() for line in above] + self.shown

    @property
    def colors(self) -> set[str]:
        """Those on the screen."""
        return {cell.fg for line in self._screen.buffer.values() for cell in line.values()}

    @property
    def styled(self) -> list[list[tuple[str, str]]]:
        """The screen in pieces of one style, as rich names styles."""
        rows = []
        for at in range(len(self.shown)):
            cells = [self._screen.buffer[at][column] for column in range(self._screen.columns)]
            styles = [f"{'bold ' if cell.bold else ''}{_color(cell.fg)}" for cell in cells]
            pieces = itertools.groupby(zip(cells, styles, strict=True), key=lambda pair: pair[1])
            rows.append([("".join(cell.data for cell, _ in group), style) for style, group in pieces])
        return rows

    def wait_for(self, pattern: str) -> None:
        """Reads until a line on the screen matches somewhere; AssertionError with what is there if none ever does."""
        self._read_until(lambda: any(re.search(pattern, line) for line in self.shown), pattern)

    def type(self, keys: str) -> None:
        """What a person types, such as `\\x03` for Ctrl-C."""
        os.write(self._master, keys.encode())

    def wait(self) -> int:
        """Reads to the program's end, and returns its exit code."""
        self._read_until(lambda: False, "its end")
        return self._process.wait()

    def _read_until(self, is_there: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not is_there():
            assert time.monotonic() < end, f"{what}: not shown:\n" + "\n".join(self.shown)
            if not select.select([self._master], [], [], 1.0)[0]:
                continue
            try:
                data = os.read(self._master, 65536)
            except OSError:  # the last process that had it open has left
                data = b""
            if not data:
                assert what == "its end", f"{what}: ended without it:\n" + "\n".join(self.shown)
                return
            self.raw += data
            self._stream.feed(data)


def _color(name: str) -> str:
    """As rich calls what pyte calls `brown`, `brightblack`, `f92672`."""
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    return name.replace("brown", "yellow").replace("bright", "bright_")
