"""Keep the contract for a framework on several ranks: they decide together, and the first hands over."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from unbroken.errors import CheckpointError
from unbroken.program.verdict import Kind
from unbroken.runs.progress import Handover, Progress
from unbroken.system import fs
from unbroken.training.core.environment import read_contract
from unbroken.training.core.framework_session import OFTEN, FrameworkSession, NextAction
from unbroken.training.core.process_group import RankRequest
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase
from unbroken.training.core.validation import give_verdict
from unbroken.training.torch import random_state
from unbroken.training.torch import state as torch_state
from unbroken.training.torch.gradients import Gradients
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.rank_checkpoint import OWN_FILE, made_by
from unbroken.training.torch.serialization import save_verified
from unbroken.training.torch.state import only
from unbroken.training.torch.switches import modes_of, restore_modes


def refuse(kind: type[Exception], message: str) -> NoReturn:
    """Raise the error, after reporting it to the process that started us, which then logs it and does not retry."""
    give_verdict(Kind.HOPELESS, message)
    raise kind(message)


class RanksSession(FrameworkSession):
    """Run a FrameworkSession on each rank; all call it in the same order.  On one process it is a FrameworkSession.

    The function that `hand_over` receives is called on all ranks, with one folder, when all of them are there.
    """

    def __init__(
        self, versions: Mapping[str, str], folder: str | os.PathLike[str] | None = None, saves: Saves = OFTEN
    ) -> None:
        count = int(os.environ.get("WORLD_SIZE") or 1)
        if count > 1 and read_contract() is None and (folder or os.environ.get("UNBROKEN_FOLDER")):
            refuse(
                CheckpointError,
                f"{count} ranks keep checkpoints in a folder, allowed: one process, or unbroken's workflow with "
                f"`ranks: {count}` in the settings",
            )
        if saves.in_background:
            refuse(
                ValueError,
                "Saves(in_background=True), allowed: None or False, because the framework writes its checkpoints "
                "itself, between two steps; for saves in the background: Training of unbroken.training.torch",
            )
        more = {"torch": str(torch.__version__), "python": platform.python_version()}
        super().__init__({**versions, **more}, folder, saves)
        self.ranks = Ranks()
        self._agreed = RankRequest()  # what all ranks will do, and have not done yet

    def join(self) -> None:
        """Join the other ranks; call it once torch.distributed is started, before the first step."""
        if self.contract is None:
            return
        self.ranks = Ranks.here()
        self._versions = {**self._versions, "ranks": str(self.ranks.size)}
        self.look_ahead(0)

    def look_ahead(self, steps: int) -> None:
        """Announce that `steps` steps beyond the next one may pass before a checkpoint is possible."""
        # What the ranks decide together is done a step later.
        super().look_ahead(steps + (self.ranks.size > 1))

    def check_ranks(self, saved: int) -> None:
        """Raise CheckpointError if another number of ranks made the checkpoint from which this one resumes."""
        here = self.ranks.size
        if self.contract and saved != here:
            refuse(
                CheckpointError,
                f"{made_by(saved, here)}, which would train other data than are left; type ranks: {saved}",
            )

    def write_own(self, state: Mapping[str, Any], draft: Path) -> None:
        """Write on another rank what the framework saves only of the first."""
        if not self.ranks.is_first:
            path = draft / OWN_FILE.format(self.ranks.rank)
            path.parent.mkdir(exist_ok=True)
            save_verified(torch_state.canonical(dict(state), "state"), path)
            fs.flush_file(path)

    def own(self, of_first: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what this rank wrote into the checkpoint from which it resumes; the first rank wrote `of_first`."""
        if self.resume is None or self.ranks.is_first:
            return of_first
        return torch_state.load_file(self.resume / OWN_FILE.format(self.ranks.rank))

    def flush(self, path: Path) -> None:
        """Flush what only this rank wrote: unbroken flushes on the first rank's node."""
        if not self.ranks.is_first:
            fs.flush_file(path)

    def leave(self) -> NoReturn:
        """End the process as paused, as all ranks do."""
        self.ranks.leave()
        super().leave()

    def _begin_draft(self) -> Path:
        self.ranks.meet()
        if self.ranks.size == 1:
            return super()._begin_draft()
        return Path(self.ranks.by_first(lambda: str(self._link.place.new_draft())))

    def _give(self, draft: Path, handover: Handover) -> None:
        self.ranks.meet()
        if self.ranks.is_first:
            super()._give(draft, handover)
        self.ranks.meet()
        self._agreed = replace(self._agreed, due=False)
        if handover.is_finished:
            self.ranks.settle()

    def _report(self, progress: Progress) -> None:
        if self.ranks.is_first:
            super()._report(progress)

    def _wish(self, following: Phase) -> NextAction:
        if self.ranks.size == 1:
            return super()._wish(following)
        # Between epochs all ranks wait for each other: there a request is granted at once.
        said = self.ranks.agreed(lambda: self._own(following), at_once=following is not Phase.BATCH)
        # While gradients are added up, a request has to wait, and must not be forgotten.
        self._agreed = RankRequest(stop=said.stop or self._agreed.stop, due=said.due or self._agreed.due)
        if self._agreed.stop:
            return NextAction.LEAVE
        self.ranks.ask(lambda: self._own(following))
        return NextAction.SAVE if self._agreed.due else NextAction.GO_ON

    def _own(self, following: Phase) -> RankRequest:
        is_due = self.ranks.is_first and not self._agreed.due and self._link.is_save_due(self._step)
        return RankRequest(stop=self._link.pace.must_stop(following), due=is_due)


class Omitted:
    """Save what frameworks omit from a checkpoint: random numbers, accumulated gradients, frozen layers and modes."""

    def __init__(self, parts: Mapping[str, object]) -> None:
        self._models, self._gradients = only(parts, torch.nn.Module), Gradients(parts)

    def state(self) -> dict[str, Any]:
        """Return it in a form that can be saved."""
        modes = {name: modes_of(model) for name, model in self._models.items()}
        state = {"random": random_state.collect({}), "gradients": self._gradients.state(), "modes": modes}
        return {name: torch_state.canonical(value, name) for name, value in state.items()}

    def put_back(self, state: Mapping[str, Any], source: str) -> None:
        """Restore it where the training resumes."""
        random_state.restore_all(state["random"], {})
        self._gradients.restore(state["gradients"], source)
        self._gradients.put_back()
        for name, modes in state["modes"].items():
            restore_modes(self._models[name], modes)
