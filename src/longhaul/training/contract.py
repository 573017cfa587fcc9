"""The environment contract as a training program keeps it; standard library alone.

What the variables mean stands in docs/contract.md.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from longhaul.contract import HANDOVER_FILE, READY
from longhaul.errors import CheckpointError
from longhaul.passport import FILE_NAME
from longhaul.progress import Handover, Progress

# A program that is this far ahead of the process that publishes would only fill the disk.
MAX_WAITING = 2
WAIT_POLL_SECONDS = 0.05
REPORT_SECONDS = 1.0


@dataclass(frozen=True)
class Contract:
    """What this process was told at its start; `deadline` is on the monotonic clock."""

    run: str
    resume: Path | None
    save: Path
    deadline: float
    stop: Path
    progress: Path
    goal: float | None
    goal_unit: str | None
    save_seconds: float


def read_contract(environment: Mapping[str, str] = os.environ) -> Contract | None:
    """The contract, or None if longhaul did not start this process."""
    if not environment.get("LONGHAUL_SAVE"):
        return None
    resume, goal = environment.get("LONGHAUL_RESUME"), environment.get("LONGHAUL_GOAL")
    # Converted once: the wall clock may jump later, and this moment must not.
    left = float(environment.get("LONGHAUL_DEADLINE") or math.inf) - time.time()
    return Contract(
        run=environment["LONGHAUL_RUN"],
        resume=Path(resume) if resume else None,
        save=Path(environment["LONGHAUL_SAVE"]),
        deadline=time.monotonic() + left,
        stop=Path(environment["LONGHAUL_STOP"]),
        progress=Path(environment["LONGHAUL_PROGRESS"]),
        goal=float(goal) if goal else None,
        goal_unit=environment.get("LONGHAUL_GOAL_UNIT") or None,
        save_seconds=float(environment["LONGHAUL_SAVE_SECONDS"]),
    )


def passport_save_seconds(resume: Path) -> float | None:
    """How long the save of the checkpoint took that we go on from; None if its passport does not say."""
    try:
        seconds = json.loads((resume / FILE_NAME).read_text())["save_seconds"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return float(seconds) if isinstance(seconds, (int, float)) else None


class Signals:
    """Notes that USR1 or TERM came, instead of dying of it.

    Install it before other processes are started: they inherit it, go on to die of TERM and live through USR1.
    """

    def __init__(self) -> None:
        self.has_come = False
        self._owner = os.getpid()

    def install(self) -> None:
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._owner:
            self.has_come = True
        elif number == signal.SIGTERM:  # a forked helper, whose parent ends it so and then waits for its death
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


class Outbox:
    """The folder through which checkpoints go to the process that started us."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0

    @property
    def has_room(self) -> bool:
        """False while as many checkpoints wait there as may."""
        return sum(name.endswith(READY) for name in os.listdir(self.folder)) < MAX_WAITING

    def new_draft(self) -> Path:
        """A new, empty folder to write one checkpoint into."""
        self._count += 1
        draft = self.folder / f"draft-{self._count:06d}"
        draft.mkdir()
        return draft

    def hand_over(self, draft: Path, handover: Handover) -> None:
        """Gives the draft away in one step; it must not be touched any more."""
        (draft / HANDOVER_FILE).write_text(json.dumps(handover_json(handover), indent=1) + "\n")
        draft.rename(self.folder / f"{self._count:06d}{READY}")


class Reporter:
    """Says now and then how far the program is, in a file that is never half written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = -math.inf

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def report(self, progress: Progress) -> None:
        """Replaces the file.  It is for watching: nothing is lost if the machine dies before it is on the disk."""
        draft = self._path.with_name(f".{self._path.name}.draft")
        draft.write_text(json.dumps(_progress_json(progress)))
        draft.replace(self._path)
        self._next = time.monotonic() + REPORT_SECONDS


def handover_json(handover: Handover) -> dict[str, object]:
    """The content of `progress.json` in a folder that is handed over."""
    data = {
        **_progress_json(handover.progress),
        "is_best": handover.is_best,
        "is_finished": handover.is_finished,
        "versions": dict(handover.versions),
        "save_seconds": handover.save_seconds,
    }
    if handover.digests:
        files = {name: vars(entry) for name, entry in handover.digests.items()}
        data["digests"] = {"algorithm": handover.algorithm, "files": files}
    return data


def _progress_json(progress: Progress) -> dict[str, object]:
    # JSON knows neither NaN nor infinity, and a loss can become both.
    metrics = {name: None if _is_endless(value) else value for name, value in progress.metrics.items()}
    return {**progress.to_json(), "metrics": metrics}


def _is_endless(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def one_process_only(environment: Mapping[str, str] = os.environ) -> None:
    """CheckpointError if several processes train together: they would write the same checkpoint."""
    size = int(environment.get("WORLD_SIZE") or 1)
    if size > 1:
        raise CheckpointError(
            f"WORLD_SIZE is {size}, allowed: 1; longhaul.training saves the state of one process; "
            "with several, keep the environment contract yourself (docs/contract.md)"
        )
