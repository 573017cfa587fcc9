"""Where the log records of this package go: each module has a logger of its name, a process says who reads them."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# The level, and a file to which each record is appended as a line of JSON.
LEVEL, JSON_LINES = "UNBROKEN_LOG", "UNBROKEN_LOG_JSON"
LEVELS = ("debug", "info", "warning", "error")
_PACKAGE = logging.getLogger("unbroken")


@contextmanager
def lines_to(write: Callable[[str], None]) -> Iterator[None]:
    """Hand the message of each record to `write`, as long as this context lasts; the innermost such context has it.

    `UNBROKEN_LOG` is the lowest level that is handed on, `info` if it is not set.  Where `UNBROKEN_LOG_JSON` names a
    file, each record is appended to it too.
    """
    before = _PACKAGE.handlers[:], _PACKAGE.level, _PACKAGE.propagate
    path = os.environ.get(JSON_LINES)
    _PACKAGE.handlers = [_Lines(write), *([_JsonLines(Path(path))] if path else [])]
    _PACKAGE.setLevel(level())
    _PACKAGE.propagate = False
    try:
        yield
    finally:
        _PACKAGE.handlers, _PACKAGE.level, _PACKAGE.propagate = before


def level() -> int:
    """Return the level that `UNBROKEN_LOG` names; an unknown name is as `info`."""
    name = os.environ.get(LEVEL, "").lower()
    return logging.getLevelNamesMapping()[name.upper()] if name in LEVELS else logging.INFO


class _Lines(logging.Handler):
    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        """Hand on the message; no error of a log ends the work."""
        try:
            self._write(record.getMessage())
        except (OSError, ValueError):
            self.handleError(record)


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
        except OSError:
            self.handleError(record)
