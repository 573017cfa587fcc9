"""Say where the log records of this package go: each module has a logger of its name, a process names the reader."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

# The level, and a file to which each record is appended as a line of JSON.
LEVEL, JSON_LINES = "UNBROKEN_LOG", "UNBROKEN_LOG_JSON"
LEVELS = ("debug", "info", "warning", "error")
_PACKAGE = logging.getLogger("unbroken")
_lock, _reading = threading.Lock(), threading.local()


@contextmanager
def lines_to(write: Callable[[str], None]) -> Iterator[None]:
    """Hand the message of each record to `write` as long as this context lasts; the one that began last has them.

    That holds for all threads of the process, in whatever order their contexts end.  `UNBROKEN_LOG` is the lowest
    level that is handed on, `info` if it is not set.  Where `UNBROKEN_LOG_JSON` names a file, each record is appended
    to it too.
    """
    reader = _Reader(write)
    with _lock:
        _readers.append(reader)
        _install()
    try:
        yield
    finally:
        with _lock:
            _readers.remove(reader)
            _install()


def level() -> int:
    """Return the level that `UNBROKEN_LOG` names; an unknown name is as `info`, and a line says so once."""
    name = os.environ.get(LEVEL, "").lower() or "info"
    if name not in LEVELS:
        _complain(f"{LEVEL}: found {name!r}, allowed: {', '.join(LEVELS)}; taken as info")
        return logging.INFO
    return logging.getLevelNamesMapping()[name.upper()]


@cache
def _complain(text: str) -> None:
    """Print a line to standard error, once in this process; who has closed that needs none."""
    with suppress(OSError, ValueError):
        print(f"unbroken: {text}", file=sys.stderr, flush=True)


def _install() -> None:
    """Give the records to the newest reader; where there is none, to whoever reads Python's log."""
    path = os.environ.get(JSON_LINES)
    _PACKAGE.handlers = [*_readers[-1:], *([_JsonLines(Path(path))] if path and _readers else [])]
    _PACKAGE.setLevel(level() if _readers else logging.NOTSET)
    _PACKAGE.propagate = not _readers


class _Reader(logging.Handler):
    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        """Hand on the message; no error of a log ends the work, and a reader that logs itself is heard once."""
        if getattr(_reading, "now", False):
            return
        _reading.now = True
        try:
            with suppress(OSError, ValueError):
                self._write(record.getMessage())
        finally:
            _reading.now = False


_readers: list[_Reader] = []


class _JsonLines(logging.Handler):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        """Append one line with the time in UTC, the level, the logger and the message."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        line = {"time": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        try:
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            _complain(f"{JSON_LINES}: {self._path}: {error.strerror}; lines of the log are missing there")
