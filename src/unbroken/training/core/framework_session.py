"""Keep the contract for a framework that runs the loop itself: when to save and leave; standard library alone."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import NoReturn

from unbroken.program.contract import EXIT_PAUSED
from unbroken.runs.progress import Handover, Progress
from unbroken.training.core import once
from unbroken.training.core.environment import Contract
from unbroken.training.core.run_directory import connect
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase
from unbroken.training.core.session import Link

# Before the first save nothing is known.
GUESSED_SAVE_SECONDS = 5.0
OFTEN = Saves()


class NextAction(Enum):
    """Name what to do between two steps."""

    GO_ON = "go on"
    SAVE = "save, then go on"
    LEAVE = "save, then leave"


class FrameworkSession:
    """Keep the contract for another library's loop; without unbroken around it or a folder, it requests nothing.

    `versions` are those of the library, for the manifest; `folder` and `saves` are those of `Training`.  Make it before
    worker processes are started.  Raise LeaseError and NoCheckpointError as `Home` does.
    """

    _link: Link  # where there is a contract

    def __init__(
        self, versions: Mapping[str, str], folder: str | os.PathLike[str] | None = None, saves: Saves = OFTEN
    ) -> None:
        self._versions = versions
        self.contract: Contract | None = None
        self._has_begun, self._step = False, 0
        if found := connect(folder, saves):
            self.contract = found[0]
            self._link = Link(*found, saves, GUESSED_SAVE_SECONDS)

    @property
    def resume(self) -> Path | None:
        """Return the checkpoint to resume from."""
        return self.contract.resume if self.contract else None

    @property
    def goal(self) -> float | None:
        """Return the goal of the configuration; None where it names none, and by hand."""
        return self.contract.goal if self.contract else None

    @property
    def counts_steps(self) -> bool:
        """Return True if the contract counts steps."""
        return self.contract is not None and self.contract.goal_unit == "steps"

    def listen(self) -> None:
        """Take the signals back from a framework that has taken them over."""
        if self.contract:
            self._link.signals.install()

    def look_ahead(self, steps: int) -> None:
        """Say how many steps more than the following one may come before there can be a checkpoint."""
        if self.contract:
            self._link.pace.steps_ahead = steps

    def step(
        self, progress: Progress, step: int, ended: Phase = Phase.BATCH, following: Phase = Phase.BATCH
    ) -> NextAction:
        """Return what to do between two steps: `step` of the whole training are done, which `Saves(steps=...)` counts.

        `ended` and `following` are the kinds of the two.
        Raise CheckpointError if this process has trained for the same contract before.
        """
        if self.contract is None:
            return NextAction.GO_ON
        self._step = step
        if self._has_begun:
            self._link.pace.end_step(ended)
            self._link.place.note("first_step")
        else:
            once.check_run(self.contract)
            once.note_begun(self.contract)
        self._has_begun = True
        self._report(progress)
        self._link.pace.begin_step()
        return self._wish(following)

    def hand_over(self, write: Callable[[Path], None], progress: Progress, is_finished: bool = False) -> None:
        """Hand over a folder that `write` fills; a kill inside leaves only a draft.  Do nothing without unbroken."""
        if self.contract is None:
            return
        began = time.monotonic()
        draft = self._begin_draft()
        try:
            write(draft)
        except BaseException:  # what is torn is of no use
            shutil.rmtree(draft, ignore_errors=True)
            raise
        seconds = time.monotonic() - began
        handover = Handover(progress, is_finished=is_finished, versions=self._versions, save_seconds=round(seconds, 3))
        self._give(draft, handover)
        self._link.pace.begin_save(self._step)
        self._link.pace.saved(seconds)
        self._link.pace.begin_step()

    def leave(self) -> NoReturn:
        """End the process as paused."""
        self._link.close_place(is_paused=True)
        sys.exit(EXIT_PAUSED)

    def _begin_draft(self) -> Path:
        return self._link.place.new_draft()

    def _give(self, draft: Path, handover: Handover) -> None:
        self._link.place.hand_over(draft, handover)

    def _report(self, progress: Progress) -> None:
        if self._link.reporter.is_due:
            self._link.report(progress)

    def _wish(self, following: Phase) -> NextAction:
        if self._link.pace.must_stop(following):
            return NextAction.LEAVE
        return NextAction.SAVE if self._link.is_save_due(self._step) else NextAction.GO_ON
