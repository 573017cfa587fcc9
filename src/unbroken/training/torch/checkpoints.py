"""Save, restore and stop a training in a loop of your own: `load` before it, `save` and `requested` after each step."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from unbroken.program.contract import EXIT_PAUSED, Kind
from unbroken.slurm.this_job import job_around_us
from unbroken.store.progress import Progress
from unbroken.training.core.environment import (
    Contract,
    Signals,
    check_thread,
    deadline_by_hand,
    end_as_failed,
    read_contract,
)
from unbroken.training.core.point import Point
from unbroken.training.core.position import UNITS
from unbroken.training.core.process_group import RankRequest
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase, SaveSchedule, StopRequest
from unbroken.training.core.validation import Validate
from unbroken.training.torch.content import NO_PARTS, Content, Parts
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.writer import TorchWriter

OFTEN = Saves()
LOADING = "after load() type: if checkpoints.imported: model.load_state_dict(torch.load(checkpoints.imported))"


class Checkpoints:
    """Keep the checkpoints of a loop of your own: call `load` before it, and `save` after each step.

    `state` names the parts of the state: whatever has `state_dict` and `load_state_dict` (a model, an optimizer,
    `Loaders`, `Variables`), a random generator of torch or numpy, or a list of such things.  The global random
    generators and accumulated gradients belong to it too.  Of several ranks all make one, and call its methods
    together; `per_rank` names the parts that each rank has for itself.  `saves` says how often to save, and what to
    keep; `validate` is a prediction by which a loaded checkpoint is checked.

    Without unbroken's workflow the checkpoints are in `folder` (or UNBROKEN_FOLDER); without a folder nothing is
    saved.
    """

    def __init__(
        self,
        state: Parts = NO_PARTS,
        *,
        per_rank: Parts = NO_PARTS,
        folder: str | os.PathLike[str] | None = None,
        saves: Saves = OFTEN,
        seed: int = 0,
        validate: Validate | Callable[[], Any] | None = None,
        new_schedule: bool = False,
    ) -> None:
        self.step, self._is_loaded = 0, False
        self.content = Content(
            state,
            per_rank,
            notes=lambda: {"position": {"step": self.step}},
            take_notes=self._take_notes,
            where=self._where,
            leave=lambda message: self._leave(Kind.HOPELESS, message),
            seed=seed,
            validate=validate,
            new_schedule=new_schedule,
        )
        self.ranks = self.content.ranks
        if self.content.stateful:
            raise TypeError(
                f"Checkpoints(state={{{next(iter(self.content.stateful))!r}: ...}}) is a StatefulDataLoader, whose "
                "start draws random numbers that a restart would draw again; allowed: Loaders, or Training"
            )
        self.link: TorchWriter | None = None  # should what cannot be saved end the training
        self.link = TorchWriter.of(folder, saves, self.content)

    @property
    def resumed(self) -> bool:
        """Return True if `load` has restored a checkpoint."""
        return self.link is not None and self.link.resumed

    @property
    def goal(self) -> float | None:
        """Return the goal in the configuration; None if it names none."""
        return self.link.contract.goal if self.link else None

    @property
    def imported(self) -> Path | None:
        """Return your own file or folder that `unbroken import` took, for your script to load, or None."""
        return self.link.imported if self.link else None

    def load(self) -> int:
        """Restore the newest good checkpoint, and return its step; return 0 if there is none.

        Call it when all parts are made, right before the loop.
        """
        self._is_loaded = True
        if self.link:
            if error := self.link.resume(self.content.restore):
                self._leave(Kind.BAD_CHECKPOINT, f"{error}, {self._where()}")
            self.content.put_the_rest_back()
            self.step = self.link.import_note.step if self.link.import_note else self.step
        return self.step

    def save(self, step: int, *, force: bool = False) -> bool:
        """Save if it is time to, or with `force`, and return True if it did so.  All ranks call it after each step.

        What is not forced may be written in the background.
        """
        self.step, link = step, self.link
        self._check_loaded()
        if link is None:
            return False
        if link.note_step():
            self.content.check()
        if self.ranks.is_first:
            link.report(lambda: self._progress(is_over=False))
        is_due = self.ranks.agreed(self._wish, at_once=False).due
        if force or is_due:
            self._write(is_over=False, is_read_back=force)
            link.pace.begin_step()
        else:
            self.ranks.ask(self._wish)
        return force or is_due

    def finish(self, files: Mapping[str, object] | None = None) -> None:
        """Hand over the last checkpoint; `files` by their names go to its folder `final/`.

        A file is text, bytes, a Path to copy, or whatever `torch.save` can save.
        """
        self._check_loaded()
        self._write(is_over=True, results=files or {})

    def close(self) -> None:
        """Return once all that was saved is on the disk, and let another process continue."""
        self.content.end_workers()
        if self.link:
            self.link.wait()
            self.link.close_place(is_paused=True)

    def _write(self, *, is_over: bool, **more: Any) -> None:
        """Save now; `more` is what `Point` holds in addition."""
        if self.link:
            self.link.save(Point(progress=self._progress(is_over=is_over), step=self.step, **more))

    def _check_loaded(self) -> None:
        """Raise RuntimeError, or end the training, if the script does not begin where it has to."""
        if not self._is_loaded:
            raise RuntimeError(
                "Checkpoints: load() was not called, so a restart would begin at step 0 again; type: "
                "step = checkpoints.load() before the loop"
            )
        if self.link and (unread := self.link.unread_import(LOADING)):
            self.content.give_up(unread)

    def _wish(self) -> RankRequest:
        return RankRequest(due=self.ranks.is_first and self.link is not None and self.link.is_save_due(self.step))

    def _progress(self, *, is_over: bool) -> Progress:
        # What is not over lies before the goal, so that it is not taken for the last one.
        goal = self.goal
        done = self.step if is_over or goal is None else min(self.step, math.nextafter(goal, 0))
        return Progress(done, goal, UNITS[1])

    def _take_notes(self, state: Mapping[str, Any]) -> None:
        self.step = state["position"]["step"]

    def _where(self) -> str:
        return f"at step {self.step}"

    def _leave(self, kind: Kind, message: str) -> NoReturn:
        end_as_failed(kind, message, self.link.place if self.link else None, self.content.end_workers)


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
