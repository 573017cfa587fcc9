"""What a child program is told, and what it hands over: the contract that any program can keep without importing us.

docs/contract.md is the user's description of it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from longhaul.errors import CheckpointError
from longhaul.progress import Handover, parse_handover, read_progress

EXIT_FINISHED = 0
EXIT_PAUSED = 85  # HTCondor's convention for a job that checkpointed itself
READY = ".ready"
HANDOVER_FILE = "progress.json"
# What a checkpoint's folder of this name holds is what the user came for.
FINAL = "final"


@dataclass(frozen=True)
class Desk:
    """The folder that a child works with: where it saves, says its progress, and is told to stop."""

    root: Path

    @property
    def save(self) -> Path:
        return self.root / "save"

    @property
    def progress(self) -> Path:
        return self.root / "progress.json"

    @property
    def stop(self) -> Path:
        return self.root / "stop"

    @property
    def verdict(self) -> Path:
        """What the program says of itself and no exit code can say (verdict.py)."""
        return self.root / "verdict.json"

    @property
    def live(self) -> Path:
        """Files to look at while the run goes on, which stay when the desk is cleared."""
        return self.root.parents[1] / "live"

    @property
    def deadline(self) -> Path:
        return self.root / "deadline"

    @property
    def note(self) -> Path:
        """What a successor must know, should this attempt be killed (salvage.py)."""
        return self.root / "attempt.json"

    def prepare(self) -> None:
        """Makes the folders of a new desk."""
        self.save.mkdir(parents=True)

    def write_deadline(self, unix: float) -> None:
        """Says by when the program should be out, now; never half written."""
        draft = self.deadline.with_suffix(".tmp")
        draft.write_text(f"{unix:.3f}\n")
        draft.replace(self.deadline)


@dataclass(frozen=True)
class Found:
    """A complete state that the program left for us: a folder ready to become a checkpoint."""

    draft: Path
    handover: Handover | None  # None from a program that says nothing of its progress


def ready_states(desk: Desk) -> list[Found]:
    """What the program has handed over with `.ready` folders, in name order; removes their progress file.

    CheckpointError if a progress file is malformed, or the save folder gone.
    """
    if not desk.save.is_dir():
        raise CheckpointError(f"{desk.save}: gone; a program must leave its save folder where it is")
    folders = sorted(path for path in desk.save.iterdir() if _is_ready(path))
    return [_found(folder, desk) for folder in folders]


def loose_state(desk: Desk, scratch: Path) -> Found | None:
    """Files that a program left directly in its save folder before it exited well, moved to `scratch`; None if none."""
    names = [path for path in desk.save.iterdir() if not _is_ready(path) and not _is_draft(path)]
    if not names:
        return None
    scratch.mkdir()
    for path in names:
        os.rename(path, scratch / path.name)
    return _found(scratch, desk)


def _is_ready(path: Path) -> bool:
    return path.name.endswith(READY) and path.is_dir()


def _is_draft(path: Path) -> bool:
    if path.name.startswith("."):
        return True
    return (path.name.startswith("draft") and path.is_dir()) or path.name.endswith(".tmp")


def _found(folder: Path, desk: Desk) -> Found:
    own = folder / HANDOVER_FILE
    if not own.exists():
        progress = read_progress(desk.progress)
        return Found(folder, Handover(progress) if progress else None)
    try:
        handover = parse_handover(json.loads(own.read_text()), str(own))
    except ValueError as error:
        raise CheckpointError(f"{own}: not JSON ({error})") from error
    own.unlink()
    return Found(folder, handover)
