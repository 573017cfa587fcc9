"""The contract for a framework that runs the loop itself: when to save, when to leave; standard library alone."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import NoReturn

from unbroken.program.contract import EXIT_PAUSED
from unbroken.runs.progress import Handover, Progress
from unbroken.runs.segment_end import EndKind
from unbroken.training.core import once
from unbroken.training.core.environment import Contract, Reporter, Signals, schedule_of
from unbroken.training.core.run_directory import connect
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase

# Before the first save nothing is known.
GUESSED_SAVE_SECONDS = 5.0
OFTEN = Saves()


class NextAction(Enum):
    """What is to be done between two steps."""

    GO_ON = "go on"
    SAVE = "save, then go on"
    LEAVE = "save, then leave"


class FrameworkSession:
    """Keeps the contract for the loop of another library; without unbroken around it, nor a folder, it wishes nothing.

    `versions` are those of the library, for the passport; `folder` and `saves` are those of `Training`.  Make it before
    worker processes are started.  LeaseError, NoCheckpointError: `Home`.
    """

    def __init__(
        self, versions: Mapping[str, str], folder: str | os.PathLike[str] | None = None, saves: Saves = OFTEN
    ) -> None:
        self._versions = versions
        self.contract: Contract | None = None
        self._has_begun, self._step = False, 0
        found = connect(folder, saves)
        if found is None:
            return
        self.contract, self._place = found
        self._signals = Signals()
        self._signals.install()
        self._reporter = Reporter(self.contract.progress)
        self._pace = schedule_of(self.contract, self.contract.saves(saves), GUESSED_SAVE_SECONDS, self._signals)

    @property
    def resume(self) -> Path | None:
        """The checkpoint to go on from."""
        return self.contract.resume if self.contract else None

    @property
    def goal(self) -> float | None:
        """The goal of the configuration; None where it names none, and by hand."""
        return self.contract.goal if self.contract else None

    @property
    def counts_steps(self) -> bool:
        """True if the contract counts steps."""
        return self.contract is not None and self.contract.goal_unit == "steps"

    def listen(self) -> None:
        """Takes the signals back from a framework that has taken them over."""
        if self.contract:
            self._signals.install()

    def look_ahead(self, steps: int) -> None:
        """So many steps more than the following one may come before there can be a checkpoint."""
        if self.contract:
            self._pace.steps_ahead = steps

    def step(
        self, progress: Progress, step: int, ended: Phase = Phase.BATCH, following: Phase = Phase.BATCH
    ) -> NextAction:
        """Return what to do between two steps: `step` of the whole training are done, which `Saves(steps=...)` counts.

        `ended` and `following` are the kinds of the two.
        CheckpointError if this process has trained for the same contract before.
        """
        if self.contract is None:
            return NextAction.GO_ON
        self._step = step
        if self._has_begun:
            self._pace.end_step(ended)
            self._place.note("first_step")
        else:
            once.check_run(self.contract)
            once.note_begun(self.contract)
        self._has_begun = True
        self._report(progress)
        self._pace.begin_step()
        return self._wish(following)

    def hand_over(self, write: Callable[[Path], None], progress: Progress, is_finished: bool = False) -> None:
        """Hands over a folder that `write` fills; a kill inside leaves a draft, no more.  Nothing without unbroken."""
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
        handover = Handover(
            progress, is_finished=is_finished, versions=self._versions, save_seconds=round(seconds, 3)
        )  # fmt: skip
        self._give(draft, handover)
        self._pace.begin_save(self._step)
        self._pace.saved(seconds)
        self._pace.begin_step()

    def leave(self) -> NoReturn:
        """Ends the process as paused."""
        self._place.note_end(EndKind.PAUSED if self._pace.is_time_up else EndKind.INTERRUPTED)
        self._place.close()
        sys.exit(EXIT_PAUSED)

    def _begin_draft(self) -> Path:
        return self._place.new_draft()

    def _give(self, draft: Path, handover: Handover) -> None:
        self._place.hand_over(draft, handover)

    def _report(self, progress: Progress) -> None:
        if self._reporter.is_due:
            self._reporter.report(replace(progress, metrics={**progress.metrics, **self._pace.chosen}))

    def _wish(self, following: Phase) -> NextAction:
        if self._pace.must_stop(following):
            return NextAction.LEAVE
        return NextAction.SAVE if self._pace.is_save_due(self._step) and self._place.has_room else NextAction.GO_ON
