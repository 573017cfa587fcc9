"""Stop a loop of your own in time: signals, a stop file, the deadline of the job."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import NoReturn

from unbroken.program.contract import EXIT_PAUSED
from unbroken.slurm.this_job import job_around_us
from unbroken.training.core.environment import Contract, Signals, check_thread, deadline_by_hand, read_contract
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase, SaveSchedule, StopRequest
from unbroken.training.torch.checkpoints import Checkpoints
from unbroken.training.torch.process_group import Ranks


class Stop(StopRequest):
    """Tell a loop of your own when to save and leave: `if stop.requested:`, once after each step, on all ranks.

    With `checkpoints` the time that a save takes is kept free before the deadline, and the stop file is the one in
    their folder.  Without them, `save_seconds` are kept free, and `stop_file` is the file; one that is there already
    is removed.  The deadline is that of unbroken's workflow, else UNBROKEN_DEADLINE or the end of the Slurm job.
    """

    def __init__(
        self,
        checkpoints: Checkpoints | None = None,
        *,
        save_seconds: float = 60.0,
        stop_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._checkpoints = checkpoints
        if checkpoints and checkpoints.link:
            super().__init__(checkpoints.link.pace, checkpoints.ranks)
        else:
            ranks, path = checkpoints.ranks if checkpoints else Ranks.here(), Path(stop_file) if stop_file else None
            if path and ranks.is_first:
                path.unlink(missing_ok=True)  # it was meant for the process before
            super().__init__(_pace(save_seconds, path, ranks), ranks)
        self._pace.begin_step()

    @property
    def requested(self) -> bool:
        self._pace.end_step(Phase.BATCH)
        found = super().requested
        self._pace.begin_step()
        return found

    def leave(self) -> NoReturn:
        """Exit with code 85 (paused) once what was saved is on the disk; call `save(step, force=True)` before."""
        if self._checkpoints:
            self._checkpoints.close()
        self._ranks.leave()
        sys.exit(EXIT_PAUSED)


def _pace(save_seconds: float, stop_file: Path | None, ranks: Ranks) -> SaveSchedule:
    check_thread()
    signals = Signals()
    signals.install()
    by_hand = Contract("", None, Path(), deadline_by_hand(job_around_us()), stop_file, Path(), math.inf)
    pace = SaveSchedule(read_contract() or by_hand, Saves(), signals, save_seconds)
    pace.steps_ahead = int(ranks.size > 1)
    return pace
