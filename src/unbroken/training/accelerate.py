"""Run a loop with Accelerate in segments: hand over what `save_state` writes and leave in time, in mid-epoch too."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import accelerate
from accelerate.data_loader import DataLoaderStateMixin
from torch.utils.data import Dataset

from unbroken.errors import CheckpointError
from unbroken.program.contract import FINAL
from unbroken.store.progress import Progress
from unbroken.training.core.position import Course, Placed
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase
from unbroken.training.loggers import Logger
from unbroken.training.torch.framework_adapter import Omitted
from unbroken.training.torch.framework_session import OFTEN, Adapter, refuse, refusing
from unbroken.training.torch.framework_shards import check_whole, sharding_of
from unbroken.training.torch.loader import end_workers
from unbroken.training.torch.loaders import Loaders, TrackedLoader
from unbroken.training.torch.process_group import Ranks
from unbroken.training.torch.serialization import save_verified
from unbroken.training.torch.state import own_part


class UnbrokenLoop(Adapter, Placed):
    """Run a loop with Accelerate in segments.  Make it before any worker process; `seed` is that of the data's order.

    `epochs` after `accelerator.prepare(model, optimizer, scheduler)`, `batches` inside, and `finish` at the end.
    Started by hand it keeps its checkpoints in `folder` (or UNBROKEN_FOLDER) and resumes from there;
    without one it trains from start to end and saves nothing.  `saves` says how often; `loggers` get what is logged.
    """

    _library = MappingProxyType({"accelerate": accelerate.__version__})
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
        ranks = Ranks(accelerator.process_index, accelerator.num_processes)
        self._accelerator, self._course = accelerator, Course(per_step=ranks.size)
        self._loaders = Loaders(seed, ranks=ranks, position=self._course.position)
        self._loaders.owner = "unbroken"
        if self._keeper.contract and accelerator.project_configuration.automatic_checkpoint_naming:
            refuse(
                CheckpointError,
                "automatic_checkpoint_naming=True, allowed: False, because unbroken says where to save",
            )
        self._keeper.join(lambda: sharding_of(accelerator.state))
        accelerator.register_for_checkpointing(self)

    def loader(self, dataset: Dataset[Any], batch_size: int | None = 1, **options: Any) -> TrackedLoader:
        """Return a DataLoader like that of `Training.loader`; it needs no `prepare`, because `batches` moves its items.

        Each has a seed of its own, by its number in the order in which the script makes them.
        """
        return self._loaders.loader(dataset, batch_size, **options)

    def endless(self, loader: TrackedLoader) -> Iterator[Any]:
        """Return an iterator over a loader, pass after pass, for data that are drawn next to `batches`."""
        return self._loaders.endless(loader)

    def epochs(self, goal: float | None = None, unit: str | None = None) -> Iterator[int]:
        """Yield the numbers, from 0, of the epochs still to be trained; first restore the newest checkpoint.

        The configuration's goal and unit take precedence over these arguments.
        """
        course = self._course
        course.aim(self._keeper.contract, goal, unit)
        self._omitted = Omitted(self._parts())
        if link := self._keeper.link:
            link.pace.steps_ahead += self._accelerator.gradient_accumulation_steps - 1  # DeepSpeed's, once prepared
            if self._keeper.resume:
                self._load(self._keeper.resume)
                link.pace.begin_save(course.position.step)  # which there is already
        while not course.is_over:
            self._loaders.begin_epoch()
            course.position.is_closed = False
            if course.position.batch == 0:
                self._put_back()
            yield course.position.epoch
            course.close_epoch()
            if not course.is_over:
                self._ask(Phase.END, Phase.START)

    def batches(self, loader: TrackedLoader) -> Iterator[Any]:
        """Yield this epoch's batches still to be trained, on their device; save or leave between them.

        Code between `epochs` and here runs again after a restart in the middle of the epoch.
        """
        course, at = self._course, self._course.position
        steps = loader.enter_epoch(at)
        with refusing():
            course.begin(steps.batches, "the loader has")
        if not len(steps):
            at.batch = steps.batches  # with drop_last, the rest is not enough for all ranks
        if self._course.is_epoch_over:
            self._put_back()
            return
        iterator = loader.begin_epoch(at.epoch)
        self._put_back()  # not before: the start of a loader is no part of the training
        self._loaders.begin_batches()
        announced, phase = _Announced(), Phase.START
        announced.begin()
        try:
            for batch in iterator:
                course.is_in_batch, course.next_batch = True, steps.end_after(at.batch)
                announced.end_of_dataloader = self.is_last_batch
                yield accelerate.utils.send_to_device(batch, self._accelerator.device)
                course.count_batch()
                if phase is Phase.START:
                    with refusing():
                        self._loaders.check_passes()
                self._ask(phase, Phase.END if course.is_epoch_over else Phase.BATCH)
                if course.is_epoch_over:
                    break
                phase = Phase.BATCH
        finally:
            announced.end()
            if not loader.persistent_workers:
                end_workers(iterator)

    def log(self, **metrics: float) -> None:
        """Log metrics of this step; the last value of each is shown."""
        numbers = {name: float(value) for name, value in metrics.items()}
        self._keeper.log.add(self.epoch, self.step + self._course.is_in_batch, numbers)

    def finish(self, files: Mapping[str, object] | None = None) -> None:
        """Hand over the last checkpoint; `files` are what `torch.save` can save, in `final/` by their names."""
        self._course.count_batch()
        if self._keeper.sharding.hides_weights:
            for name, content in (files or {}).items():
                check_whole(content, name)
        self._save(self._course.done, files or {})

    # --- what Accelerate saves and puts back: this object is registered ---

    def state_dict(self) -> dict[str, Any]:
        """Return where the training is, and what Accelerate does not save."""
        state = {"position": dict(vars(self._course.position)), "seed": self._seed}
        state["loaders"] = self._loaders.state_dict()
        return state | (self._omitted.state() if self._omitted else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state; random numbers and gradients follow where the loop resumes.

        Raise CheckpointError if the state was made with another seed.
        """
        if state["seed"] != self._seed:
            refuse(CheckpointError, f"the checkpoint was made with seed={state['seed']}, allowed: the same seed")
        self._course.restore(state["position"])
        self._loaders.load_state_dict(state["loaders"])
        self._loaded = self._keeper.own(state)

    # --- our own ---

    def _load(self, folder: Path) -> None:
        """Load what Accelerate has saved; in an imported checkpoint nothing of this object is."""
        note, objects = self._keeper.import_note, self._accelerator._custom_objects
        if note:
            self._accelerator._custom_objects = [each for each in objects if each is not self]
            self._course.restore({"epoch": note.epoch, "step": note.step, "epoch_step": note.step})
        self._accelerator.load_state(str(folder))
        self._accelerator._custom_objects = objects

    def _ask(self, ended: Phase, following: Phase) -> None:
        """Save or leave between two steps; a save waits while `accumulate` adds up gradients.  Others are saved."""
        done, step = self._course.reported, self._course.position.step
        if self._keeper.step(self._progress(done), step, ended, following) and self._accelerator.sync_gradients:
            self._save(done)

    def _save(self, done: float, results: Mapping[str, object] | None = None) -> None:
        """Hand over what Accelerate saves; with results it is the last checkpoint."""

        def write(draft: Path) -> None:
            self._accelerator.save_state(str(draft))
            self._keeper.write_own(self.state_dict, draft)
            for name, content in (results or {}).items() if self._keeper.ranks.is_first else ():
                (draft / FINAL).mkdir(exist_ok=True)
                save_verified(content, draft / FINAL / name, zip_checksums=True)

        self._keeper.hand_over(write, self._progress(done), is_finished=results is not None)

    def _progress(self, done: float) -> Progress:
        return Progress(done, self._course.goal, self._course.unit, dict(self._keeper.log.metrics.latest))

    def _put_back(self) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is not None and self._omitted:
            self._omitted.put_back(loaded, str(self._keeper.resume))

    def _parts(self) -> dict[str, object]:
        """Return the prepared models and optimizers, which may hold gradients."""
        models, optimizers = self._accelerator._models, self._accelerator._optimizers
        parts = {f"model{number}": own_part(model) for number, model in enumerate(models)}
        return parts | {f"optimizer{number}": optimizer for number, optimizer in enumerate(optimizers)}


class _Announced(DataLoaderStateMixin):  # type: ignore[misc]
    """Announce to Accelerate a loader that it did not prepare, so that an epoch's last batch ends an accumulation."""

    def __init__(self) -> None:
        self.gradient_state = accelerate.state.GradientState()
        self._drop_last = True  # no rank gets a sample twice, so there is no remainder
