"""The DMTCP engine: starts the keeper, which keeps the contract for a program that knows nothing of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from unbroken.engines.base import Engine, Task
from unbroken.engines.dmtcp.protocol import LEAVING, WHY
from unbroken.errors import SegmentError
from unbroken.program.contract import HandedOver, copied_states, ready_states
from unbroken.runs.layout import RunFolder
from unbroken.runs.run import Run

LIVE = "live"
# hwloc looks at disks through udev, which DMTCP cannot save; without that, gmx and many MPI programs can be saved.
HWLOC = {"HWLOC_COMPONENTS": "-linuxio"}


class DmtcpEngine(Engine):
    """Any process under `dmtcp_launch`; one object serves one attempt, and those that it saves from."""

    name = "dmtcp"

    def __init__(self, base: Path = Path()) -> None:
        self._base = base

    def command(self, task: Task) -> list[str]:
        return keeper_command(task.run, self._base, RunFolder(task.run.name, self._base).root)

    def environment(self, task: Task) -> dict[str, str]:
        """What the keeper is told; of it the program sees the number of threads, and hwloc's setting."""
        hwloc = {name: os.environ.get(name, value) for name, value in HWLOC.items()}
        return {**hwloc, **super().environment(task)}

    def leaving_since(self, task: Task) -> float | None:
        """The keeper begins to save when it thinks that it must."""
        try:
            return float((task.desk.root / LEAVING).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def last_states(self, task: Task, has_left_well: bool) -> list[HandedOver]:
        """What was saved; SegmentError with the keeper's own line if that is nothing and it failed."""
        found = ready_states(task.desk)
        why = task.desk.root / WHY
        if not found and why.exists():
            raise SegmentError(f"runs.{task.run.name}: {why.read_text().strip()}")
        return found

    def salvage(self, task: Task) -> list[HandedOver]:
        """Checkpoints that the killed attempt had handed over but nobody had published yet."""
        return copied_states(task.desk)


def keeper_command(run: Run, base: Path, root: Path) -> list[str]:
    """The keeper for a run whose program lives below `root`.

    By the Python that runs unbroken; `-I`, because a module's PYTHONPATH is for the program alone.
    """
    settings = run.settings
    words = [sys.executable, "-I", "-m", "unbroken.engines.dmtcp.supervisor", "--live", str(root / LIVE)]
    words += [word for name in _list(run, "inputs") for word in ("--input", str(base / name))]
    words += ["--programs", str(base / str(settings["dmtcp"]))] if settings["dmtcp"] else []
    words += [f"--option={word}" for word in _list(run, "options")]
    seconds = settings["restart_seconds"]
    words += [] if seconds is None else ["--restart-seconds", f"{seconds}"]
    words += ["--compress"] if settings["compress"] is True else []
    words += ["--machine-may-differ"] if settings["machine_may_differ"] is True else []
    return [*words, "--", *_list(run, "command")]


def _list(run: Run, name: str) -> list[str]:
    value = run.settings[name]
    return [str(word) for word in value] if isinstance(value, (list, tuple)) else []
