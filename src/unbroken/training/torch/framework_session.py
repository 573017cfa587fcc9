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
from unbroken.system.digests import preferred_algorithm
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
from unbroken.training.torch.serialization import digest_of, save_verified

# Before the first save nothing is known.
GUESSED_BYTES = 500_000_000
OFTEN = Saves()


def refuse(message: str, kind: type[Exception] = CheckpointError) -> NoReturn:
    """Raise the error, after reporting it to the process that started us, which then logs it and does not retry."""
    give_verdict(Kind.HOPELESS, message)
    raise kind(message)


@contextmanager
def refusing() -> Iterator[None]:
    """Refuse what raises CheckpointError inside."""
    try:
        yield
    except CheckpointError as error:
        refuse(str(error))


class Adapter:
    """Keep the contract for another library's loop; without unbroken around it or a folder, it requests nothing.

    `folder`, `saves` and `loggers` are those of `Training`.  Make it before worker processes are started.  All ranks
    call its methods in the same order; the function that `_hand_over` receives is called on all of them, with one
    folder, when all are there.  Raise LeaseError and NoCheckpointError as `Home` does.
    """

    _library: Mapping[str, str]  # its name and version, for the manifest
    _state_file = ""  # of the library in a checkpoint, if not the whole folder
    _sharding = Sharding()
    _trained, _following = 0, Phase.BATCH  # steps of the whole training, and the kind of the next one
    _is_save_asked = False
    _pending = RankRequest()  # what all ranks will do, and have not done yet

    def __init__(
        self,
        seed: int = 0,
        *,
        folder: str | os.PathLike[str] | None = None,
        saves: Saves = OFTEN,
        loggers: Sequence[Logger] = (),
    ) -> None:
        self._seed, self._log = seed, MetricsLog(loggers)
        self._ranks = Ranks.here() if here().size > 1 else Ranks()
        # Lightning sets WORLD_SIZE too, for processes that it starts itself, and then no RANK.
        self._started = int(os.environ.get("WORLD_SIZE") or 1) if "RANK" in os.environ else 1
        _check_options(self._ranks, folder, saves)
        self._versions = {**self._library, "torch": str(torch.__version__), "python": platform.python_version()}
        found = connect(folder, saves, self._ranks)
        self._link = link = Connection(*found, saves, GUESSED_BYTES, self._ranks) if found else None
        self._origin = link.contract.resume if link else None  # the checkpoint to resume from
        self._note = link.import_note if link else None  # of a checkpoint of the library's alone

    @property
    def resumed(self) -> bool:
        """Return True if there is a checkpoint to resume from."""
        return self._origin is not None

    @property
    def resume(self) -> str | None:
        """Return the checkpoint to resume from, as the framework takes it; None if the training begins at zero."""
        return str(self._origin / (self._note.path if self._note else self._state_file)) if self._origin else None

    @property
    def goal(self) -> Any:
        """Return the goal of the configuration, an int where it is one; None where it names none, and by hand."""
        goal = self._link.contract.goal if self._link else None
        return goal if goal is None or goal % 1 else int(goal)

    @property
    def stop_requested(self) -> bool:
        """Return True if this process was asked to stop or its time is up: it saves and leaves after this step."""
        return self._link is not None and self._link.pace.must_stop(Phase.BATCH)

    def save(self) -> None:
        """Ask for a checkpoint after this step; of several ranks one is enough, and it comes a step later."""
        self._is_save_asked = True

    # --- for the adapters ---

    def _join(self, find: Callable[[], Sharding] = Sharding, *, is_import_of_any: bool = False) -> None:
        """Join the other ranks; call it once torch.distributed is started, before the first step.

        `find` returns how they share the model, and raises CheckpointError if that is not saved.  Raise it too if they
        shared it otherwise when the checkpoint was made, or other ranks made it; with `is_import_of_any`, a checkpoint
        that was imported may be of any.
        """
        if link := self._link:
            with refusing():
                self._sharding = find()
            self._ranks = link.ranks = self._ranks if self._ranks.size > 1 else Ranks.here()
            self._versions |= {"ranks": str(self._ranks.size), "sharding": str(self._sharding)}
            link.pace.when_saved = self._log.published
            if self._origin:
                with refusing():
                    self._check_origin(self._origin, is_import_of_any=is_import_of_any)
        step = self._log.read(self._origin) if self._origin else 0
        self._log.open(self._ranks if link else here(), step, link.contract.live if link else None)
        if self._origin and manifest_of(self._origin).get("is_finished"):  # the framework may train no step more
            self._log.show(is_over=True)

    def _check_origin(self, folder: Path, *, is_import_of_any: bool) -> None:
        """Raise CheckpointError if other ranks made the checkpoint, or it lacks a shard."""
        made, here, sharding = manifest_of(folder).get("versions") or {}, self._ranks.size, str(self._sharding)
        if (was := made.get("sharding", sharding)) != sharding:
            raise CheckpointError(f"the checkpoint was made with {was}, and now it is {sharding}; type {was}")
        names = [str(path.relative_to(folder)) for path in folder.rglob("*")]
        saved = int(made.get("ranks") or (here if is_import_of_any else framework_shards.count_ranks(names)))
        if saved != here:
            raise CheckpointError(
                f"{made_by(saved, here)}, which would train other data than are left; type ranks: {saved}"
            )
        if here > 1:
            framework_shards.check_shards(names, here, self._sharding.zero, folder)

    def _begin(self, step: int, following: Phase = Phase.BATCH, *, steps_ahead: int = 0) -> None:
        """Note that the training begins, where `step` of its steps are done already.

        With `steps_ahead` so many steps more than the following one may come before there can be a checkpoint.
        Raise CheckpointError if this process has trained for the same contract before.
        """
        if link := self._link:
            check_run(link.contract)
            note_begun(link.contract)
            # What several ranks decide together is done a step later.
            link.pace.steps_ahead = steps_ahead + (self._ranks.size > 1)
            link.pace.begin_save(step)
            link.pace.begin_step()
            self._following = following

    def _is_due(self, progress: Progress, step: int, following: Phase = Phase.BATCH) -> bool:
        """Return True if a checkpoint is to be handed over now, between two steps; `following` is the kind of the next.

        `step` of the whole training are done, which `Saves(steps=...)` counts.
        """
        if (link := self._link) is None:
            return False
        link.pace.end_step(self._following)
        self._trained, self._following = step, following
        link.note_step()
        if self._ranks.is_first and link.report(lambda: progress):
            self._log.show()
        link.pace.begin_step()
        # Between epochs all ranks wait for each other: there a request is granted at once.
        said = self._ranks.agreed(lambda: self._wish(link, following), at_once=following is not Phase.BATCH)
        # While gradients are added up, a request has to wait, and must not be forgotten.
        self._pending = RankRequest(stop=said.stop or self._pending.stop, due=said.due or self._pending.due)
        if not self._pending.stop:
            self._ranks.ask(lambda: self._wish(link, following))
        return self._pending.is_to_save

    def _wish(self, link: Connection, following: Phase) -> RankRequest:
        asked, self._is_save_asked = self._is_save_asked, False
        is_due = self._ranks.is_first and not self._pending.due and link.is_save_due(self._trained)
        return RankRequest(stop=link.pace.must_stop(following), due=is_due or asked)

    def _hand_over(self, write: Callable[[Path], None], progress: Progress, *, is_finished: bool = False) -> None:
        """Hand over a folder that `write` fills; a kill inside leaves only a draft.  Write nothing without unbroken.

        End the process as paused, as all ranks do, if `_is_due` has found that it is time to.
        """
        if is_finished:
            self._log.finish(self._trained)
        if (link := self._link) is None:
            return
        is_last = self._pending.stop and not is_finished
        point = Point(progress=progress, step=self._trained, is_last=is_last, results={} if is_finished else None)
        link.complete(link.begin(point), lambda point: self._fill(link, point, write))
        if is_finished:
            self._ranks.settle()
        elif is_last:
            self._ranks.leave()
            self._log.close()
            sys.exit(EXIT_PAUSED)
        self._pending = RankRequest()
        link.pace.begin_step()

    def _fill(self, link: Connection, point: Point, write: Callable[[Path], None]) -> None:
        write(point.draft)
        if self._ranks.is_first:
            self._log.write(point.draft, self._trained)
        told = {"algorithm": preferred_algorithm(), "digests": self._digests(point.draft), "versions": self._versions}
        self._ranks.by_first(lambda: link.hand_over(point, **told))

    def _digests(self, draft: Path) -> dict[str, FileDigest]:
        """Flush what each of several ranks has written, on its own node, and return the digests of that.

        Raise CheckpointError, on all ranks, if the shard of one is missing.
        """
        if self._ranks.size == 1:
            return {}
        self._ranks.meet()
        mine = {}
        for path in framework_shards.files_of(draft, self._ranks.rank):
            fs.flush(path)
            mine[str(path.relative_to(draft))] = digest_of(path)
        found = {name: digest for each in self._ranks.all_gather(mine) for name, digest in each.items()}
        framework_shards.check_shards(found, self._ranks.size, self._sharding.zero, draft)
        self._ranks.by_first(lambda: framework_shards.check_described(draft))
        return found

    def _write_own(self, state: Callable[[], dict[str, Any]], draft: Path) -> None:
        """Write on another rank what the framework saves only of the first."""
        if not self._ranks.is_first:
            path = draft / OWN_FILE.format(self._ranks.rank)
            path.parent.mkdir(exist_ok=True)
            save_verified(torch_state.canonical(state(), "state"), path)

    def _own(self, of_first: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what this rank wrote into the checkpoint from which it resumes; the first rank wrote `of_first`."""
        if self._origin is None or self._ranks.is_first:
            return of_first
        return torch_state.load_file(self._origin / OWN_FILE.format(self._ranks.rank))


def _check_options(ranks: Ranks, folder: str | os.PathLike[str] | None, saves: Saves) -> None:
    """Raise CheckpointError if ranks that are not connected yet would share a folder, ValueError for `saves`."""
    count, is_named = int(os.environ.get("WORLD_SIZE") or 1), bool(folder or os.environ.get("UNBROKEN_FOLDER"))
    if count > 1 and ranks.size == 1 and read_contract() is None and is_named:
        refuse(
            f"{count} ranks keep checkpoints in a folder, allowed: one process, Accelerate, or unbroken's workflow "
            f"with `ranks: {count}` in the settings"
        )
    if saves.in_background:
        refuse(
            "Saves(in_background=True), allowed: None or False, because the framework writes its checkpoints "
            "itself, between two steps; for saves in the background: Training of unbroken.training.torch",
            ValueError,
        )
