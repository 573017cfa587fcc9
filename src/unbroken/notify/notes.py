"""Who tells an event, and whether it is told: files that are made exclusively, below `.snakemake/unbroken/notify`.

finished-000003-20261124T100000Z.try1    the first try: by which process, on which machine
finished-000003-20261124T100000Z.failed1 it failed, and how
finished-000003-20261124T100000Z.told    the command has taken it; nobody tries again
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from unbroken.system import fs, jsontext
from unbroken.system.host import boot_id, pid_namespace, process_start

# A command that fails everywhere is not tried for ever.
MOST_TRIES = 1000


@dataclass(frozen=True)
class Claimed:
    """The right to tell an event, which one process has at a time."""

    folder: Path
    key: str
    number: int

    def told(self) -> None:
        """The command has taken it."""
        fs.create_exclusive(self.folder / f"{self.key}.told", "")

    def failed(self, why: str) -> None:
        """The next process may try."""
        fs.create_exclusive(self.folder / f"{self.key}.failed{self.number}", f"{why}\n")


def claim(folder: Path, key: str, limit_seconds: float) -> Claimed | None:
    """The right to tell an event; None if it is told, is just being told, or has failed too often.

    Of a process that was killed in between the next one takes over: at once on the same machine, elsewhere when the
    try is older than the command may take, twice over.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, MOST_TRIES + 1):
        if (folder / f"{key}.told").exists():
            return None
        path = folder / f"{key}.try{number}"
        if fs.create_exclusive(path, json.dumps(_self(folder))):
            # Somebody may have told it between the look and the claim.
            return None if (folder / f"{key}.told").exists() else Claimed(folder, key, number)
        if not (folder / f"{key}.failed{number}").exists() and _is_alive(path, limit_seconds):
            return None
    return None


def _self(folder: Path) -> dict[str, object]:
    pid = os.getpid()
    return {
        "host": platform.node(),
        "boot": boot_id(),
        "namespace": pid_namespace(),
        "pid": pid,
        "start": process_start(pid),
        "time": fs.now_of(folder),
    }


def _is_alive(path: Path, limit_seconds: float) -> bool:
    """Whether the process that made the try may still be at it."""
    try:
        by = jsontext.parse(path.read_text())
        if (by["host"], by["boot"], by["namespace"]) == (platform.node(), boot_id(), pid_namespace()):
            return bool(process_start(int(by["pid"])) == by["start"])
        return abs(fs.now_of(path.parent) - float(by["time"])) < 2 * limit_seconds + 60
    except (OSError, ValueError, KeyError, TypeError):
        return False
