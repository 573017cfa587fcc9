"""Save and restore a training in a loop of your own: `load` before it, `save` after each step."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

from unbroken.program.contract import Kind
from unbroken.store.progress import Progress
from unbroken.training.core.environment import end_as_failed
from unbroken.training.core.position import UNITS
from unbroken.training.core.process_group import RankRequest
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.session import together
from unbroken.training.core.validation import Validate
from unbroken.training.torch import sharded_state
from unbroken.training.torch import state as torch_state
from unbroken.training.torch.content import Content, Extra
from unbroken.training.torch.loaders import Loaders
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.state import Part
from unbroken.training.torch.unsaved import make_persistent
from unbroken.training.torch.validation import non_finite_weight, weights_of
from unbroken.training.torch.writer import Point, TorchWriter, linked

OFTEN = Saves()
LOADING = "after load() type: if checkpoints.imported: model.load_state_dict(torch.load(checkpoints.imported))"
Parts: TypeAlias = Mapping[str, Part | Sequence[Part]]
NO_PARTS: Parts = MappingProxyType({})


@dataclass(frozen=True)
class Record:
    """Hold what `Training` keeps in a checkpoint in addition to the parts."""

    extras: Mapping[str, Extra] = field(default_factory=dict)
    loaders: Loaders | None = None
    is_prepared: bool = False
    finite: bool = True  # weights that hold NaN or infinity are no checkpoint
    where: Callable[[], str] | None = None  # the training is
    leave: Callable[[Kind, str], NoReturn] | None = None  # without saving


def checked(state: Parts, per_rank: Parts) -> dict[str, Part]:
    """Return all parts by their names; raise TypeError for one that cannot be saved."""
    parts = torch_state.one_by_one(together(state, per_rank))
    torch_state.check_parts(parts)
    sharded_state.check_kinds(parts)
    return parts


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
        ranks: Ranks | None = None,
        record: Record | None = None,
    ) -> None:
        parts, own = checked(state, per_rank), {*torch_state.one_by_one(per_rank)}
        self.ranks, self.step, self._is_loaded = ranks or Ranks.here(), 0, False
        for line in make_persistent(parts, own, self.ranks.size):
            self.ranks.say(line)
        position: dict[str, Extra] = {"position": (lambda: {"step": self.step}, self._go_to)}
        self._record = record or Record(position)
        self.content = Content(
            parts,
            self.ranks,
            seed=seed,
            extras=self._record.extras,
            loaders=self._record.loaders,
            validate=validate,
            new_schedule=new_schedule,
            is_prepared=self._record.is_prepared,
        )
        if self.content.stateful and not record:
            raise TypeError(
                f"Checkpoints(state={{{next(iter(self.content.stateful))!r}: ...}}) is a StatefulDataLoader, whose "
                "start draws random numbers that a restart would draw again; allowed: Loaders, or Training"
            )
        # A state is made at once, because what cannot be saved is better known now than after the first hour.
        self.link: TorchWriter | None = None  # should that end the training
        own |= self.content.stateful.keys()
        self.link = linked(folder, saves, self._state, parts=parts, own=own, ranks=self.ranks)
        if self.link is None:
            self.ranks.say("started by hand without a folder, so nothing is saved")
            return
        self.link.give_up = lambda message: self._leave(Kind.HOPELESS, message)
        for part in self.content.stateful.values():
            part.prepare_workers()

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
                self._give_up(Kind.BAD_CHECKPOINT, error)
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
            self.check()
        if self.ranks.is_first:
            link.report(lambda: self._progress(is_over=False))
        is_due = self.ranks.agreed(self._wish, at_once=False).due
        if force or is_due:
            self.write(self._progress(is_over=False), step, is_read_back=force)
            link.pace.begin_step()
        else:
            self.ranks.ask(self._wish)
        return force or is_due

    def finish(self, files: Mapping[str, object] | None = None) -> None:
        """Hand over the last checkpoint; `files` by their names go to its folder `final/`.

        A file is text, bytes, a Path to copy, or whatever `torch.save` can save.
        """
        self._check_loaded()
        self.write(self._progress(is_over=True), self.step, results=self.results(files))

    def close(self) -> None:
        """Return once all that was saved is on the disk, and let another process continue."""
        self.content.end_workers()
        if self.link:
            self.link.wait()
            self.link.close_place(is_paused=True)

    # --- for Training, too ---

    def check(self) -> None:
        """Look for what cannot be saved; raise TypeError or end the training if there is such a thing."""
        self.content.check_loaders()
        if unshared := self.content.gradients.unshared():
            self._give_up(Kind.HOPELESS, unshared)
        self.content.say_unsaved()

    def write(self, progress: Progress, step: int, *, is_best: bool = False, **more: Any) -> None:
        """Save now; `more` is what `Point` holds in addition."""
        if self.link:
            # Before the weights: after an evaluation FSDP2 holds whole ones, which it frees when it is asked for these.
            state = self._state()
            weights = weights_of(self.content.parts) if self._record.finite else {}
            more |= {"is_best": is_best, "where": self._where()}
            self.link.save(Point(state=state, weights=weights, progress=progress, step=step, **more))

    def results(self, files: Mapping[str, object] | None) -> dict[str, object]:
        """Return the files with each sharded tensor whole, on the first rank, which alone writes them."""
        self.ranks.settle()
        return dict(sharded_state.whole(dict(files or {}), is_kept=self.ranks.is_first))

    def _state(self) -> dict[str, Any]:
        self.check()
        state, trust = self.content.state(), self.content.trust
        if self._record.finite:
            non_finite = trust.non_finite_prediction(state["trust"])
            if non_finite or self.link is None:  # else the weights are asked in the copy of them that is saved
                non_finite = non_finite_weight(weights_of(self.content.parts)) or non_finite
            if non_finite:
                self._give_up(Kind.HOPELESS, non_finite)
        return state

    def _check_loaded(self) -> None:
        """Raise RuntimeError, or end the training, if the script does not begin where it has to."""
        if not self._is_loaded:
            raise RuntimeError(
                "Checkpoints: load() was not called, so a restart would begin at step 0 again; type: "
                "step = checkpoints.load() before the loop"
            )
        if self.link and (unread := self.link.unread_import(LOADING)):
            self._give_up(Kind.HOPELESS, unread)

    def _wish(self) -> RankRequest:
        return RankRequest(due=self.ranks.is_first and self.link is not None and self.link.is_save_due(self.step))

    def _progress(self, *, is_over: bool) -> Progress:
        # What is not over lies before the goal, so that it is not taken for the last one.
        goal = self.goal
        done = self.step if is_over or goal is None else min(self.step, math.nextafter(goal, 0))
        return Progress(done, goal, UNITS[1])

    def _go_to(self, position: Mapping[str, Any]) -> None:
        self.step = position["step"]

    def _where(self) -> str:
        return self._record.where() if self._record.where else f"at step {self.step}"

    def _give_up(self, kind: Kind, message: str) -> NoReturn:
        self._leave(kind, f"{message}, {self._where()}")

    def _leave(self, kind: Kind, message: str) -> NoReturn:
        if self._record.leave and self.link:  # else it is not made yet
            self._record.leave(kind, message)
        end_as_failed(kind, message, self.link.place if self.link else None, self.content.end_workers)
