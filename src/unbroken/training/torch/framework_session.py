"""Keep the contract for a framework that runs the loop itself: all ranks decide together, and the first hands over."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

import torch

from unbroken.errors import CheckpointError
from unbroken.program.contract import EXIT_PAUSED, Kind
from unbroken.store.progress import FileDigest, Progress
from unbroken.system import fs
from unbroken.system.digests import digest_file, preferred_algorithm
from unbroken.training.core import once
from unbroken.training.core.environment import Contract, manifest_of, read_contract
from unbroken.training.core.framework_log import FrameworkLog
from unbroken.training.core.point import Point
from unbroken.training.core.process_group import RankRequest
from unbroken.training.core.run_directory import connect
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase
from unbroken.training.core.session import Connection
from unbroken.training.core.validation import give_verdict
from unbroken.training.loggers import Logger
from unbroken.training.torch import framework_shards
from unbroken.training.torch import state as torch_state
from unbroken.training.torch.framework_shards import Sharding
from unbroken.training.torch.process_group import Ranks, here
from unbroken.training.torch.rank_checkpoint import OWN_FILE, made_by
from unbroken.training.torch.serialization import save_verified

# Before the first save nothing is known.
GUESSED_BYTES = 500_000_000
OFTEN = Saves()


class Wish(Enum):
    """Name what to do between two steps."""

    GO_ON = "go on"
    SAVE = "save, then go on"
    LEAVE = "save, then leave"


def refuse(kind: type[Exception], message: str) -> NoReturn:
    """Raise the error, after reporting it to the process that started us, which then logs it and does not retry."""
    give_verdict(Kind.HOPELESS, message)
    raise kind(message)


@contextmanager
def refusing() -> Iterator[None]:
    """Refuse what raises CheckpointError inside."""
    try:
        yield
    except CheckpointError as error:
        refuse(CheckpointError, str(error))


class FrameworkSession:
    """Keep the contract for another library's loop; without unbroken around it or a folder, it requests nothing.

    `versions` are those of the library, for the manifest; `folder`, `saves` and `loggers` are those of `Training`.
    Make it before worker processes are started.  All ranks call it in the same order; the function that `hand_over`
    receives is called on all of them, with one folder, when all are there.  Raise LeaseError and NoCheckpointError as
    `Home` does.
    """

    _link: Connection  # where there is a contract

    def __init__(
        self,
        versions: Mapping[str, str],
        folder: str | os.PathLike[str] | None = None,
        saves: Saves = OFTEN,
        loggers: Sequence[Logger] = (),
    ) -> None:
        self.ranks, self.log = Ranks.here() if here().size > 1 else Ranks(), FrameworkLog(loggers)
        _check_options(self.ranks, folder, saves)
        self._versions = {**versions, "torch": str(torch.__version__), "python": platform.python_version()}
        self.contract: Contract | None = None
        self._has_begun, self._step = False, 0
        self._is_save_asked = False
        self.sharding = Sharding()
        self._agreed = RankRequest()  # what all ranks will do, and have not done yet
        found = connect(folder, saves, self.ranks)
        if found:
            self.contract = found[0]
            self._link = Connection(*found, saves, GUESSED_BYTES)

    @property
    def resume(self) -> Path | None:
        """Return the checkpoint to resume from."""
        return self.contract.resume if self.contract else None

    @property
    def counts_steps(self) -> bool:
        """Return True if the contract counts steps."""
        return self.contract is not None and self.contract.goal_unit == "steps"

    @property
    def stop_requested(self) -> bool:
        """Return True if this process was asked to stop, or its time is up."""
        return self.contract is not None and self._link.pace.must_stop(Phase.BATCH)

    def save(self) -> None:
        """Ask for a checkpoint between this step and the next."""
        self._is_save_asked = True

    def join(self, find: Callable[[], Sharding] = Sharding) -> None:
        """Join the other ranks; call it once torch.distributed is started, before the first step.

        `find` returns how they share the model, and raises CheckpointError if that is not saved.  Raise it too if they
        shared it otherwise when the checkpoint was made.
        """
        if self.contract:
            with refusing():
                self.sharding = find()
            before = (manifest_of(self.resume).get("versions") or {}).get("sharding") if self.resume else None
            if before not in (None, str(self.sharding)):
                refuse(
                    CheckpointError,
                    f"the checkpoint was made with {before}, and now it is {self.sharding}; type {before}",
                )
            self.ranks = self._link.ranks = self.ranks if self.ranks.size > 1 else Ranks.here()
            self._versions = {**self._versions, "ranks": str(self.ranks.size), "sharding": str(self.sharding)}
            self.look_ahead(0)
        self.log.begin(self.ranks if self.contract else here(), self._link if self.contract else None)
        if self.resume and manifest_of(self.resume).get("is_finished"):  # the framework may train no step more
            self.log.show(is_over=True)

    def listen(self) -> None:
        """Take the signals back from a framework that has taken them over."""
        if self.contract:
            self._link.signals.install()

    def look_ahead(self, steps: int) -> None:
        """Say how many steps more than the following one may come before there can be a checkpoint."""
        if self.contract:  # what several ranks decide together is done a step later
            self._link.pace.steps_ahead = steps + (self.ranks.size > 1)

    def note_saved(self, step: int) -> None:
        """Note that there is a checkpoint of this step already."""
        if self.contract:
            self._link.pace.begin_save(step)

    def check_ranks(self, saved: int) -> None:
        """Raise CheckpointError if the checkpoint to resume from lacks a shard, or other ranks made it."""
        here = self.ranks.size
        if self.contract and saved != here:
            refuse(
                CheckpointError,
                f"{made_by(saved, here)}, which would train other data than are left; type ranks: {saved}",
            )
        if self.resume and here > 1:
            names = [str(path.relative_to(self.resume)) for path in self.resume.rglob("*")]
            with refusing():
                framework_shards.check_shards(names, here, self.sharding.zero, self.resume)

    def step(self, progress: Progress, step: int, ended: Phase = Phase.BATCH, following: Phase = Phase.BATCH) -> Wish:
        """Return what to do between two steps: `step` of the whole training are done, which `Saves(steps=...)` counts.

        `ended` and `following` are the kinds of the two.
        Raise CheckpointError if this process has trained for the same contract before.
        """
        if self.contract is None:
            return Wish.GO_ON
        self._step = step
        if self._has_begun:
            self._link.pace.end_step(ended)
            self._link.place.note("first_step")
        else:
            once.check_run(self.contract)
            once.note_begun(self.contract)
        self._has_begun = True
        if self.ranks.is_first:
            self._link.report(lambda: progress)
        self._link.pace.begin_step()
        return self._wish(following)

    def _wish(self, following: Phase) -> Wish:
        # Between epochs all ranks wait for each other: there a request is granted at once.
        said = self.ranks.agreed(lambda: self._own(following), at_once=following is not Phase.BATCH)
        # While gradients are added up, a request has to wait, and must not be forgotten.
        self._agreed = RankRequest(stop=said.stop or self._agreed.stop, due=said.due or self._agreed.due)
        if self._agreed.stop:
            return Wish.LEAVE
        self.ranks.ask(lambda: self._own(following))
        return Wish.SAVE if self._agreed.due else Wish.GO_ON

    def _own(self, following: Phase) -> RankRequest:
        asked, self._is_save_asked = self._is_save_asked, False
        is_due = self.ranks.is_first and not self._agreed.due and self._link.is_save_due(self._step)
        return RankRequest(stop=self._link.pace.must_stop(following), due=is_due or asked)

    def hand_over(self, write: Callable[[Path], None], progress: Progress, *, is_finished: bool = False) -> None:
        """Hand over a folder that `write` fills; a kill inside leaves only a draft.  Write nothing without unbroken."""
        if is_finished:
            self.log.finish()
        if self.contract is None:
            return
        point = Point(progress=progress, step=self._step, results={} if is_finished else None)
        self._link.complete(self._link.begin(point), lambda point: self._fill(point, write))
        self._agreed = replace(self._agreed, due=False)
        if is_finished:
            self.ranks.settle()
        self._link.pace.begin_step()

    def _fill(self, point: Point, write: Callable[[Path], None]) -> None:
        write(point.draft)
        if self.ranks.is_first:
            self.log.write(point.draft, self._step)
        told = {"algorithm": preferred_algorithm(), "digests": self._digests(point.draft), "versions": self._versions}
        self.ranks.by_first(lambda: self._link.hand_over(point, **told))

    def _digests(self, draft: Path) -> dict[str, FileDigest]:
        """Flush what each of several ranks has written, on its own node, and return the digests of that.

        Raise CheckpointError, on all ranks, if the shard of one is missing.
        """
        self.ranks.meet()
        mine = {}
        for path in framework_shards.files_of(draft, self.ranks.rank) if self.ranks.size > 1 else ():
            fs.flush(path)
            digest = digest_file(path, preferred_algorithm())
            mine[str(path.relative_to(draft))] = FileDigest(path.stat().st_size, digest)
        found = {name: digest for each in self.ranks.all_gather(mine) for name, digest in each.items()}
        if self.ranks.size > 1:
            framework_shards.check_shards(found, self.ranks.size, self.sharding.zero, draft)
            self.ranks.by_first(lambda: framework_shards.check_described(draft))
        return found

    def leave(self) -> NoReturn:
        """End the process as paused, as all ranks do."""
        self.ranks.leave()
        self.log.close()
        self._link.close_place(is_paused=True)
        sys.exit(EXIT_PAUSED)

    def write_own(self, state: Mapping[str, Any], draft: Path) -> None:
        """Write on another rank what the framework saves only of the first."""
        if not self.ranks.is_first:
            path = draft / OWN_FILE.format(self.ranks.rank)
            path.parent.mkdir(exist_ok=True)
            save_verified(torch_state.canonical(dict(state), "state"), path)

    def own(self, of_first: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what this rank wrote into the checkpoint from which it resumes; the first rank wrote `of_first`."""
        if self.resume is None or self.ranks.is_first:
            return of_first
        return torch_state.load_file(self.resume / OWN_FILE.format(self.ranks.rank))


def _check_options(ranks: Ranks, folder: str | os.PathLike[str] | None, saves: Saves) -> None:
    """Raise CheckpointError if ranks that are not connected yet would share a folder, ValueError for `saves`."""
    count, is_named = int(os.environ.get("WORLD_SIZE") or 1), bool(folder or os.environ.get("UNBROKEN_FOLDER"))
    if count > 1 and ranks.size == 1 and read_contract() is None and is_named:
        refuse(
            CheckpointError,
            f"{count} ranks keep checkpoints in a folder, allowed: one process, Accelerate, or unbroken's workflow "
            f"with `ranks: {count}` in the settings",
        )
    if saves.in_background:
        refuse(
            ValueError,
            "Saves(in_background=True), allowed: None or False, because the framework writes its checkpoints "
            "itself, between two steps; for saves in the background: Training of unbroken.training.torch",
        )
