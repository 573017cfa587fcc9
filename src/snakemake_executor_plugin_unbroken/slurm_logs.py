"""Slurm's own logs of jobs that went well, removed as the parent does, but only once the job has surely closed them."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

CLOSED_SECONDS = 60.0


class SlurmLogs:
    """Logs that are to go."""

    def __init__(self) -> None:
        self._paths: list[tuple[float, Path]] = []

    def remove_soon(self, path: Path) -> None:
        self._paths.append((time.monotonic() + CLOSED_SECONDS, path))

    def remove_due(self) -> None:
        now = time.monotonic()
        while self._paths and self._paths[0][0] <= now:
            _remove(self._paths.pop(0)[1])

    def remove_all(self) -> None:
        while self._paths:
            _remove(self._paths.pop()[1])


def remove_older(folder: Path, days: float) -> None:
    """Removes the logs below a folder that nobody has written to for so long."""
    oldest = time.time() - days * 86400
    for path in folder.rglob("*.log"):
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
