"""Keep the contract for a framework that runs the loop itself: all ranks decide together, and the first hands over."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch

from unbroken.errors import CheckpointError
from unbroken.program.contract import EXIT_PAUSED, Kind
from unbroken.store.progress import FileDigest, Progress
from unbroken.system import fs
from unbroken.system.digests import digest_file, preferred_algorithm
from unbroken.training.core.environment import give_verdict, manifest_of, read_contract
from unbroken.training.core.metrics_log import MetricsLog
from unbroken.training.core.point import Point
from unbroken.training.core.process_group import RankRequest
from unbroken.training.core.run_directory import check_run, connect, note_begun
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase
from unbroken.training.core.session import Connection
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

    _has_begun, _step = False, 0
    _is_save_asked = False
    _agreed = RankRequest()  # what all ranks will do, and have not done yet
    sharding = Sharding()

    def __init__(
        self,
        versions: Mapping[str, str],
        folder: str | os.PathLike[str] | None = None,
        saves: Saves = OFTEN,
        loggers: Sequence[Logger] = (),
    ) -> None:
        self.ranks, self.log = Ranks.here() if here().size > 1 else Ranks(), MetricsLog(loggers)
        # Lightning sets WORLD_SIZE too, for processes that it starts itself, and then no RANK.
        self.started = int(os.environ.get("WORLD_SIZE") or 1) if "RANK" in os.environ else 1
        _check_options(self.ranks, folder, saves)
        self._versions = {**versions, "torch": str(torch.__version__), "python": platform.python_version()}
        found = connect(folder, saves, self.ranks)
        self.link = Connection(*found, saves, GUESSED_BYTES) if found else None
        self.contract = self.link.contract if self.link else None
        self.import_note = self.link.import_note if self.link else None  # of a checkpoint of the library's alone

    @property
    def resume(self) -> Path | None:
        """Return the checkpoint to resume from."""
        return self.contract.resume if self.contract else None

    @property
    def unit(self) -> str | None:
        """Return what the goal of the configuration counts; None if it says nothing."""
        return self.contract.goal_unit if self.contract else None

    def ask(self) -> None:
        """Ask for a checkpoint between this step and the next."""
        self._is_save_asked = True

    def join(self, find: Callable[[], Sharding] = Sharding, *, is_import_of_any: bool = False) -> None:
        """Join the other ranks; call it once torch.distributed is started, before the first step.

        `find` returns how they share the model, and raises CheckpointError if that is not saved.  Raise it too if they
        shared it otherwise when the checkpoint was made, or other ranks made it; with `is_import_of_any`, a checkpoint
        that was imported may be of any.
        """
        if link := self.link:
            with refusing():
                self.sharding = find()
            self.ranks = link.ranks = self.ranks if self.ranks.size > 1 else Ranks.here()
            self._versions |= {"ranks": str(self.ranks.size), "sharding": str(self.sharding)}
            # What several ranks decide together is done a step later.
            link.pace.steps_ahead = int(self.ranks.size > 1)
            link.pace.when_saved = self.log.published
            if self.resume:
                with refusing():
                    self._check_origin(self.resume, is_import_of_any=is_import_of_any)
        step = self.log.read(self.resume) if self.resume else 0
        self.log.open(self.ranks if link else here(), step, link.contract.live if link else None)
        if self.resume and manifest_of(self.resume).get("is_finished"):  # the framework may train no step more
            self.log.show(is_over=True)

    def _check_origin(self, folder: Path, *, is_import_of_any: bool) -> None:
        """Raise CheckpointError if other ranks made the checkpoint, or it lacks a shard."""
        made, here = manifest_of(folder).get("versions") or {}, self.ranks.size
        if made.get("sharding", str(self.sharding)) != str(self.sharding):
            was = made["sharding"]
            raise CheckpointError(f"the checkpoint was made with {was}, and now it is {self.sharding}; type {was}")
        names = [str(path.relative_to(folder)) for path in folder.rglob("*")]
        saved = int(made.get("ranks") or (here if is_import_of_any else framework_shards.count_ranks(names)))
        if saved != here:
            raise CheckpointError(
                f"{made_by(saved, here)}, which would train other data than are left; type ranks: {saved}"
            )
        if here > 1:
            framework_shards.check_shards(names, here, self.sharding.zero, folder)

    def step(self, progress: Progress, step: int, ended: Phase = Phase.BATCH, following: Phase = Phase.BATCH) -> bool:
        """Return True if a checkpoint is to be handed over now, between two steps of the kinds `ended` and `following`.

        `step` of the whole training are done, which `Saves(steps=...)` counts.
        Raise CheckpointError if this process has trained for the same contract before.
        """
        if (link := self.link) is None:
            return False
        self._step = step
        if self._has_begun:
            link.pace.end_step(ended)
            link.note_step()
        else:
            check_run(link.contract)
            note_begun(link.contract)
        self._has_begun = True
        if self.ranks.is_first and link.report(lambda: progress):
            self.log.show()
        link.pace.begin_step()
        # Between epochs all ranks wait for each other: there a request is granted at once.
        said = self.ranks.agreed(lambda: self._wish(link, following), at_once=following is not Phase.BATCH)
        # While gradients are added up, a request has to wait, and must not be forgotten.
        self._agreed = RankRequest(stop=said.stop or self._agreed.stop, due=said.due or self._agreed.due)
        if not self._agreed.stop:
            self.ranks.ask(lambda: self._wish(link, following))
        return self._agreed.is_to_save

    def _wish(self, link: Connection, following: Phase) -> RankRequest:
        asked, self._is_save_asked = self._is_save_asked, False
        is_due = self.ranks.is_first and not self._agreed.due and link.is_save_due(self._step)
        return RankRequest(stop=link.pace.must_stop(following), due=is_due or asked)

    def hand_over(self, write: Callable[[Path], None], progress: Progress, *, is_finished: bool = False) -> None:
        """Hand over a folder that `write` fills; a kill inside leaves only a draft.  Write nothing without unbroken.

        End the process as paused, as all ranks do, if `step` has found that it is time to leave.
        """
        if is_finished:
            self.log.finish(self._step)
        if (link := self.link) is None:
            return
        is_last = self._agreed.stop and not is_finished
        point = Point(progress=progress, step=self._step, is_last=is_last, results={} if is_finished else None)
        link.complete(link.begin(point), lambda point: self._fill(link, point, write))
        link.pace.begin_step()
        if is_finished:
            self.ranks.settle()
        elif is_last:
            self.ranks.leave()
            self.log.close()
            sys.exit(EXIT_PAUSED)
        self._agreed = RankRequest()

    def _fill(self, link: Connection, point: Point, write: Callable[[Path], None]) -> None:
        write(point.draft)
        if self.ranks.is_first:
            self.log.write(point.draft, self._step)
        told = {"algorithm": preferred_algorithm(), "digests": self._digests(point.draft), "versions": self._versions}
        self.ranks.by_first(lambda: link.hand_over(point, **told))

    def _digests(self, draft: Path) -> dict[str, FileDigest]:
        """Flush what each of several ranks has written, on its own node, and return the digests of that.

        Raise CheckpointError, on all ranks, if the shard of one is missing.
        """
        if self.ranks.size == 1:
            return {}
        self.ranks.meet()
        mine = {}
        for path in framework_shards.files_of(draft, self.ranks.rank):
            fs.flush(path)
            digest = digest_file(path, preferred_algorithm())
            mine[str(path.relative_to(draft))] = FileDigest(path.stat().st_size, digest)
        found = {name: digest for each in self.ranks.all_gather(mine) for name, digest in each.items()}
        framework_shards.check_shards(found, self.ranks.size, self.sharding.zero, draft)
        self.ranks.by_first(lambda: framework_shards.check_described(draft))
        return found

    def write_own(self, state: Callable[[], dict[str, Any]], draft: Path) -> None:
        """Write on another rank what the framework saves only of the first."""
        if not self.ranks.is_first:
            path = draft / OWN_FILE.format(self.ranks.rank)
            path.parent.mkdir(exist_ok=True)
            save_verified(torch_state.canonical(state(), "state"), path)

    def own(self, of_first: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what this rank wrote into the checkpoint from which it resumes; the first rank wrote `of_first`."""
        if self.resume is None or self.ranks.is_first:
            return of_first
        return torch_state.load_file(self.resume / OWN_FILE.format(self.ranks.rank))


class Adapter:
    """Offer what all adapters have in common; `folder`, `saves` and `loggers` are those of `Training`."""

    _library: Mapping[str, str]  # its name and version, for the manifest

    def __init__(
        self,
        seed: int = 0,
        *,
        folder: str | os.PathLike[str] | None = None,
        saves: Saves = OFTEN,
        loggers: Sequence[Logger] = (),
    ) -> None:
        self._seed, self._keeper = seed, FrameworkSession(self._library, folder, saves, loggers)

    @property
    def resumed(self) -> bool:
        """Return True if there is a checkpoint to resume from."""
        return self._keeper.resume is not None

    @property
    def resume(self) -> str | None:
        """Return the checkpoint to resume from, as the framework takes it; None if the training begins at zero."""
        return str(self._keeper.resume) if self._keeper.resume else None

    @property
    def goal(self) -> Any:
        """Return the goal of the configuration, an int where it is one; None where it names none, and by hand."""
        goal = self._keeper.contract.goal if self._keeper.contract else None
        return goal if goal is None or goal % 1 else int(goal)

    @property
    def stop_requested(self) -> bool:
        """Return True if this process was asked to stop or its time is up: it saves and leaves after this step."""
        return self._keeper.link is not None and self._keeper.link.pace.must_stop(Phase.BATCH)

    def save(self) -> None:
        """Ask for a checkpoint after this step; of several ranks one is enough, and it comes a step later."""
        self._keeper.ask()


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
