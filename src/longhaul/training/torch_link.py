"""A training's connection to the longhaul process that started it: what it is told, and what it hands over."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from longhaul.digests import preferred_algorithm
from longhaul.errors import CheckpointError
from longhaul.progress import FileDigest, Handover, Progress
from longhaul.training.contract import (
    WAIT_POLL_SECONDS,
    Contract,
    Outbox,
    Reporter,
    Signals,
    passport_save_seconds,
)
from longhaul.training.pace import Pace, Phase
from longhaul.training.torch_save import save_verified
from longhaul.training.torch_state import STATE_FILE, canonical

FINAL = "final"
# Before the first save nothing is known: optimizers keep about twice the model, and 100 MB/s is a slow disk.
GUESSED_GROWTH = 3
GUESSED_BYTES_PER_SECOND = 100e6


class Link:
    """Made before any worker process is, which inherit the signal handlers."""

    def __init__(self, contract: Contract, state_bytes: int) -> None:
        self.contract = contract
        self.outbox = Outbox(contract.save)
        self.reporter = Reporter(contract.progress)
        signals = Signals()
        signals.install()
        known = passport_save_seconds(contract.resume) if contract.resume else None
        guess = GUESSED_GROWTH * state_bytes / GUESSED_BYTES_PER_SECOND
        seconds = guess if known is None else known
        self.pace = Pace(contract.deadline, contract.stop, contract.save_seconds, seconds, lambda: signals.has_come)

    @property
    def is_save_due(self) -> bool:
        """True if it is time, and what was saved before is on its way: to go on is better than to wait."""
        return self.pace.is_save_due() and self.outbox.has_room

    def wait_for_room(self, following: Phase) -> None:
        """Returns when one more checkpoint may be handed over, or when there is no time to wait."""
        while not self.outbox.has_room and not self.pace.must_stop(following):
            time.sleep(WAIT_POLL_SECONDS)

    def save(
        self, state: object, progress: Progress, is_best: bool, results: Mapping[str, object] | None = None
    ) -> None:
        """Hands over one checkpoint, the last one if it carries `results`; a kill inside leaves a draft, no more."""
        began = time.monotonic()
        draft = self.outbox.new_draft()
        digests = {STATE_FILE: save_verified(state, draft / STATE_FILE)}
        for name, content in (results or {}).items():
            digests[f"{FINAL}/{name}"] = _write_result(draft / FINAL, name, content)
        seconds = time.monotonic() - began
        handover = Handover(
            progress,
            is_best=is_best,
            is_finished=results is not None,
            versions={"torch": str(torch.__version__), "numpy": np.__version__, "python": platform.python_version()},
            save_seconds=round(seconds, 3),
            algorithm=preferred_algorithm(),
            digests={name: digest for name, digest in digests.items() if digest},
        )
        self.outbox.hand_over(draft, handover)
        self.pace.saved(seconds)


def _write_result(folder: Path, name: str, content: object) -> FileDigest | None:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise CheckpointError(f"finish(): {name!r} lies outside of final/, allowed: a file name")
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content)
    else:
        return save_verified(_canonical_if_plain(content, name), path, zip_checksums=True)
    return None


def _canonical_if_plain(content: object, name: str) -> object:
    try:
        return canonical(content, name)
    except CheckpointError:
        return content  # it is the user's own file: what torch.save can write is good enough
