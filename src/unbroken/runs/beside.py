"""Processes beside the work, which tell and show it: nobody waits for them, and they harm nobody."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_NICENESS = 10


def start_beside(
    words: Sequence[str], folder: Path, log: Path, is_kept: bool = False
) -> subprocess.Popen[bytes] | None:
    """Starts a command in a folder, in a session of its own and giving way to all others; None if that cannot be.

    What it prints goes to `log`, behind what stood there if that `is_kept`.
    """
    with suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab" if is_kept else "wb") as file:
            process = subprocess.Popen(
                words, cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        with suppress(OSError):
            own = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, process.pid, max(own, _NICENESS))
        return process
    return None
