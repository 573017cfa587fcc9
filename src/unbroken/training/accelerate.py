"""Run a loop with Accelerate in segments: hand over what `save_state` writes and leave in time, in mid-epoch too."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import accelerate
from accelerate.data_loader import DataLoaderStateMixin
from torch.utils.data import DataLoader, Dataset

from unbroken.program.contract import FINAL
from unbroken.training.core.loop import Loop
from unbroken.training.core.point import write_result
from unbroken.training.core.position import Course
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase
from unbroken.training.loggers import Logger
from unbroken.training.torch.content import Omitted
from unbroken.training.torch.framework_session import OFTEN, Adapter, refuse, refusing
from unbroken.training.torch.framework_shards import check_whole, sharding_of
from unbroken.training.torch.loader import end_workers
from unbroken.training.torch.loaders import Loaders, TrackedLoader
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.samplers import EpochSteps
from unbroken.training.torch.serialization import save_result
from unbroken.training.torch.state import own_part
from unbroken.training.torch.stateful_loader import not_resumable


class UnbrokenLoop(Adapter, Loop):
    """Run a loop with Accelerate in segments.  Make it before any worker process; `seed` is that of the data's order.

    `epochs` after `accelerator.prepare(model, optimizer, scheduler)`, `batches` inside, and `finish` at the end.
    Started by hand it keeps its checkpoints in `folder` (or UNBROKEN_FOLDER) and resumes from there;
    without one it trains from start to end and saves nothing.  `saves` says how often; `loggers` get what is logged.
    """

    _library = MappingProxyType({"accelerate": accelerate.__version__})
    _ranks: Ranks
    _omitted: Omitted | None = None
    _loaded: Mapping[str, Any] | None = None  # what is put back where the loop resumes

    def __init__(
        self,
        accelerator: accelerate.Accelerator,
        seed: int = 0,
        *,
        folder: str | os.PathLike[str] | None = None,
        saves: Saves = OFTEN,
        loggers: Sequence[Logger] = (),
    ) -> None:
        super().__init__(seed, folder=folder, saves=saves, loggers=loggers)
        self._accelerator = accelerator
        if self._link and accelerator.project_configuration.automatic_checkpoint_naming:
            refuse("automatic_checkpoint_naming=True, allowed: False, because unbroken says where to save")
        self._join(lambda: sharding_of(accelerator.state))
        self._course = Course(per_step=self._ranks.size)
        self._loaders = Loaders(seed, ranks=self._ranks, position=self._course.position)
        self._loaders.owner = "unbroken"
        accelerator.register_for_checkpointing(self)

    def loader(self, dataset: Dataset[Any], batch_size: int | None = 1, **options: Any) -> DataLoader[Any]:
        """Return a DataLoader like that of `Training.loader`; it needs no `prepare`, because `batches` moves its items.

        Each has a seed of its own, by its number in the order in which the script makes them.
        """
        return self._loaders.loader(dataset, batch_size, **options)

    def endless(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """Return an iterator over a loader, pass after pass, for data that are drawn next to `batches`."""
        return self._loaders.endless(loader)

    def batches(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """Yield this epoch's batches still to be trained, on their device; save or leave between them.

        Code between `epochs` and here runs again after a restart in the middle of the epoch.
        """
        if not isinstance(loader, TrackedLoader):
            raise not_resumable(loader)
        self._check_once()
        steps = loader.enter_epoch(self._course.position)
        with refusing():
            self._course.begin(steps.batches, "the loader has")
        if not len(steps):
            self._course.position.batch = steps.batches  # with drop_last, the rest is not enough for all ranks
        with closing(self._moved(loader, steps)) as stream:
            yield from self._train(stream, steps.samples, steps.end_after)
        self._put_back()

    def finish(self, files: Mapping[str, object] | None = None) -> None:
        """Hand over the last checkpoint, with the results in its folder `final/`.

        The results are metrics.csv, metrics.json and `files`, by their names: text, bytes, a Path to copy, or whatever
        `torch.save` can save.
        """
        for name, content in (files or {}).items() if self._sharding.hides_weights else ():
            check_whole(content, name)
        self._finish(files or {})

    # --- what Accelerate saves and puts back: this object is registered ---

    def state_dict(self) -> dict[str, Any]:
        """Return where the training is, and what Accelerate does not save."""
        state = {"position": dict(vars(self._course.position)), "seed": self._seed}
        return state | {"loaders": self._loaders.state_dict()} | (self._omitted.state() if self._omitted else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state; random numbers and gradients follow where the loop resumes.

        Raise CheckpointError if the state was made with another seed.
        """
        if state["seed"] != self._seed:
            refuse(f"the checkpoint was made with seed={state['seed']}, allowed: the same seed")
        self._course.restore(state["position"])
        self._loaders.load_state_dict(state["loaders"])
        self._loaded = self._own(state)

    # --- what the loop asks for ---

    def _begin_epoch(self) -> None:
        self._loaders.begin_epoch()

    def _aim(self, goal: float | None, unit: str | None) -> None:
        self._course.aim(self._link.contract if self._link else None, goal, unit)
        if self._omitted:
            return  # it was begun before, with another goal
        models, optimizers = self._accelerator._models, self._accelerator._optimizers  # which may hold gradients
        parts = {f"model{number}": own_part(model) for number, model in enumerate(models)}
        self._omitted = Omitted(parts | {f"optimizer{number}": each for number, each in enumerate(optimizers)})
        if self._origin:
            self._restore(self._origin)
        steps = self._accelerator.gradient_accumulation_steps  # DeepSpeed's own, once prepared
        self._begin(self.step, Phase.START, steps_ahead=steps - 1)

    def _restore(self, folder: Path) -> str:
        """Load what Accelerate has saved; in an imported checkpoint nothing of this object is."""
        note, objects = self._note, self._accelerator._custom_objects
        if note:
            self._accelerator._custom_objects = [each for each in objects if each is not self]
            self._course.restore({"epoch": note.epoch, "step": note.step, "epoch_step": note.step})
        self._accelerator.load_state(str(folder))
        self._accelerator._custom_objects = objects
        return ""

    @property
    def _is_repeating(self) -> bool:
        return self._loaded is not None

    def _put_back(self) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is not None and self._omitted:
            self._omitted.put_back(loaded, str(self._origin))
        self._loaders.begin_batches()

    def _moved(self, loader: TrackedLoader, steps: EpochSteps) -> Generator[Any, None, None]:
        """Yield the batches on their device, where Accelerate knows of the loader."""
        at, announced = self._course.position, _Announced()
        iterator = loader.begin_epoch(at.epoch)
        self._put_back()  # not before: the start of a loader is no part of the training
        announced.begin()
        try:
            for number, batch in enumerate(iterator):
                announced.end_of_dataloader = steps.end_after(at.batch) == at.batches
                yield accelerate.utils.send_to_device(batch, self._accelerator.device)
                if number == 0:  # now, not only when it is to be saved
                    self._loaders.check_passes()
        finally:
            announced.end()
            if not loader.persistent_workers:
                end_workers(iterator)

    def _tick(self, ended: Phase, following: Phase) -> None:
        """Save or leave between two steps; a save waits while `accumulate` adds up gradients.  Others are saved."""
        progress = self._progress(self._course.reported)
        if self._is_due(progress, self.step, following) and self._accelerator.sync_gradients:
            self._log.note_times(self.step)  # before, because this process may leave in the save
            self._save(self._course.reported)

    def _save(self, done: float, *, results: Mapping[str, object] | None = None, **more: object) -> None:
        def write(draft: Path) -> None:
            self._accelerator.save_state(str(draft))
            self._write_own(self.state_dict, draft)
            for name, content in (results or {}).items() if self._ranks.is_first else ():
                write_result(draft / FINAL, name, content, save_result)

        self._hand_over(write, self._progress(done), is_finished=results is not None)


class _Announced(DataLoaderStateMixin):  # type: ignore[misc]
    """Announce to Accelerate a loader that it did not prepare, so that an epoch's last batch ends an accumulation."""

    def __init__(self) -> None:
        self.gradient_state = accelerate.state.GradientState()
        self._drop_last = True  # no rank gets a sample twice, so there is no remainder
