"""Read what unbroken passes to the supervisor in the environment, and write its answers (docs/contract.md)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unbroken.program.contract import HANDOVER_FILE, READY
from unbroken.runs.progress import Handover

# Files in the attempt folder: when the supervisor began to leave (for the learned margin), and why it failed.
LEAVING, WHY = "leaving", "why"
# As many checkpoints as may lie there unpublished.
_WAITING = 2


@dataclass(frozen=True)
class Told:
    """Hold the contract's variables."""

    resume: Path | None
    save: Path
    stop: Path
    deadline: Path
    progress: Path
    save_seconds: float

    @property
    def attempt_folder(self) -> Path:
        return self.save.parent

    @property
    def draft(self) -> Path:
        """Return the folder of a checkpoint that is being made; no other process reads it."""
        return self.save / "draft"

    def left_seconds(self) -> float:
        """Return the seconds to the current deadline."""
        return float(self.deadline.read_text()) - time.time()

    def is_stopped(self) -> bool:
        return self.stop.exists()

    def may_save(self) -> bool:
        """Return False while unbroken has not published the earlier checkpoints."""
        return len(self._ready()) < _WAITING

    def hand_over(self, handover: Handover, number: int) -> None:
        """Make the draft the supervisor's checkpoint of that number."""
        (self.draft / HANDOVER_FILE).write_text(json.dumps(handover.to_json()))
        os.rename(self.draft, self.save / f"{number:06d}{READY}")

    def say_leaving(self) -> None:
        """Record that the supervisor begins its last save."""
        (self.attempt_folder / LEAVING).write_text(f"{time.monotonic()}\n")

    def say_why(self, line: str) -> None:
        """Write what failed, in one line for the user."""
        (self.attempt_folder / WHY).write_text(f"{line}\n")

    def _ready(self) -> list[Path]:
        return [path for path in self.save.iterdir() if path.name.endswith(READY)]


def told_by(environment: Mapping[str, str]) -> Told:
    """Read the environment of a program that unbroken started."""
    resume = environment["UNBROKEN_RESUME"]
    return Told(
        Path(resume) if resume else None,
        Path(environment["UNBROKEN_SAVE"]),
        Path(environment["UNBROKEN_STOP"]),
        Path(environment["UNBROKEN_DEADLINE_FILE"]),
        Path(environment["UNBROKEN_PROGRESS"]),
        float(environment["UNBROKEN_SAVE_SECONDS"]),
    )
