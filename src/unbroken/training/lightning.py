"""Run Lightning's Trainer in segments: hand over its checkpoints, leave in time, resume before any batch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset

from unbroken.errors import CheckpointError
from unbroken.program.contract import FINAL
from unbroken.store.progress import Progress
from unbroken.training.core.save_schedule import Phase
from unbroken.training.torch.content import Omitted
from unbroken.training.torch.framework_session import Adapter, refuse
from unbroken.training.torch.framework_shards import Sharding
from unbroken.training.torch.loader import ResumableLoader

if TYPE_CHECKING:
    import pytorch_lightning as pl
else:  # the same code under two names, and a callback of one is none for the other: the one that the script uses
    NAMES = ("lightning.pytorch", "pytorch_lightning")
    pl = importlib.import_module(next((name for name in NAMES if name in sys.modules), NAMES[1]))

Module = pl.LightningModule


class UnbrokenCallback(Adapter, pl.callbacks.Checkpoint):
    """Save through unbroken and leave in time; Lightning calls it as the last of the callbacks.

    `trainer.fit(model, callback.loader(data, batch_size=...), ckpt_path=callback.resume, weights_only=True)`.  The
    model is in `final/model.ckpt` of a run that is finished.  Make it before the Trainer; `seed` is that of the order
    of the data.  Started by hand, on one process, it keeps its checkpoints in `folder` (or UNBROKEN_FOLDER) and
    resumes from there; without one it saves nothing.  `saves` says how often; `loggers` get what the
    module logs, every `log_every_n_steps`.
    """

    _library = MappingProxyType({"lightning": str(vars(pl)["__version__"])})
    _state_file = "lightning.ckpt"
    _omitted: Omitted | None = None
    _loaded: Mapping[str, Any] | None = None  # what is put back before the first batch
    _loaders: tuple[ResumableLoader, ...] = ()
    _share, _epoch = (0, 1), 0  # this rank and how many there are
    _has_trained = False

    def loader(self, dataset: Dataset[Any], batch_size: int = 1, **options: Any) -> ResumableLoader:
        """Return a DataLoader like that of `Training.loader`; it begins in mid-epoch without reading what is before."""
        loader = ResumableLoader.make(dataset, batch_size, self._seed, **options)
        loader.share_with(*self._share)
        loader.go_to(self._epoch, 0)
        self._loaders += (loader,)
        return loader

    # --- what Lightning calls ---

    def setup(self, trainer: pl.Trainer, pl_module: Module, stage: str) -> None:
        """Raise CheckpointError if unbroken did not start these processes, or each has only a part of the model."""
        self._share = trainer.global_rank, trainer.world_size
        self._omitted = Omitted({"model": pl_module})
        for loader in self._loaders:
            loader.share_with(*self._share)
        count, started = trainer.world_size, self._started
        if self._link and count != started:
            train = f"{count} processes train" if count > 1 else "each process trains for itself"
            refuse(
                f"{train}, and unbroken has started {started}; type ranks: {count} in the settings, or "
                f"Trainer(devices={started}, ...)"
            )
        self._join(lambda: _sharding_of(trainer.strategy), is_import_of_any=True)

    def on_train_start(self, trainer: pl.Trainer, pl_module: Module) -> None:
        """Raise TypeError if the data cannot be resumed."""
        if self._link and not isinstance(trainer.train_dataloader, ResumableLoader):
            refuse(
                f"the training data come from a {type(trainer.train_dataloader).__name__}, "
                "allowed: callback.loader(dataset, ...), which can begin in the middle of an epoch",
                TypeError,
            )
        if self._link:  # Lightning ends the process by itself after TERM, without a checkpoint and as if all were well
            self._link.signals.install()
        self._has_trained = False
        self._begin(trainer.global_step, steps_ahead=trainer.accumulate_grad_batches - 1)

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Module, batch: Any, batch_idx: int) -> None:
        """Save or leave here: everything of the batch before is done, with its validation and its epoch's end."""
        if not self._has_trained:
            self._has_trained = True
            self._put_back(trainer, pl_module)
            return  # an attempt that leaves before the first batch has made no progress, and counts as a failure
        every = getattr(trainer, "log_every_n_steps", 0) or 1  # which a connector sets
        if batch_idx == 0 or trainer.global_step % every == 0:
            self._log_changed(trainer)
        following = Phase.END if batch_idx + 1 == trainer.num_training_batches else Phase.BATCH
        is_due = self._is_due(self._progress(trainer), trainer.global_step, following)
        # Not where Lightning has added up gradients for a later batch: it begins each epoch with a new group.
        if is_due and batch_idx % trainer.accumulate_grad_batches == 0:
            self._save(trainer, batch_idx)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Module) -> None:
        """Let Lightning run what belongs to an epoch's end even after a restart in the middle of it."""
        # Lightning does not ask a scheduler that watches a metric in an epoch that it calls restarted.
        # Not by `restarting`, which sets itself to True with max_steps: no epoch after this one would have a batch.
        trainer.fit_loop._restarting = trainer.fit_loop.epoch_loop._restarting = False

    def on_train_end(self, trainer: pl.Trainer, pl_module: Module) -> None:
        """Hand over the last checkpoint, with the model in its folder `final/`."""
        self._log_changed(trainer)
        self._save(trainer, 0, is_finished=True)

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: Module, checkpoint: dict[str, Any]) -> None:
        """Add what Lightning does not save."""
        checkpoint["callbacks"][self.state_key] = self._state(trainer)

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: Module, checkpoint: dict[str, Any]) -> None:
        """Keep the state until the first batch: what Lightning does before that draws from the generators.

        Raise CheckpointError if an imported checkpoint is from mid-epoch: it lacks the loader's place.
        """
        self._loaded, fit = checkpoint["callbacks"].get(self.state_key), checkpoint["loops"]["fit_loop"]
        note, batches = self._note, fit["epoch_loop.batch_progress"]
        is_end = batches["is_last_batch"] and batches["current"]["ready"] == batches["current"]["completed"]
        if note and not is_end:
            refuse(
                f"{note.path}, which was imported, is from the middle of an epoch; allowed: the end of one, such "
                "as ModelCheckpoint(every_n_epochs=1) saves"
            )
        # Lightning starts its workers before it says which epoch it is.
        self._epoch = fit["epoch_progress"]["current"]["processed"]
        for loader in self._loaders:
            loader.go_to(self._epoch, 0)

    # --- our own ---

    def _state(self, trainer: pl.Trainer) -> dict[str, Any]:
        """Return what Lightning does not save, metrics that schedulers watch, and what it counts twice at a resume."""
        return {
            **(self._omitted.state() if self._omitted else {}),
            "stepped": trainer.fit_loop.epoch_loop._batches_that_stepped,
            "metrics": dict(trainer.callback_metrics),
        }

    def _put_back(self, trainer: pl.Trainer, pl_module: Module) -> None:
        """Restore, before the first batch after a restart, this rank's state and what Lightning has counted again."""
        state, self._loaded = self._loaded, None
        if state is None:
            return
        own, loop = self._own(state), trainer.fit_loop.epoch_loop
        loop._batches_that_stepped = state["stepped"]
        loop.batch_progress.total.ready = loop.batch_progress.total.completed + 1
        trainer.callback_metrics.update(own["metrics"])
        _begin_averaging(trainer, pl_module)
        if self._omitted:
            self._omitted.put_back(own, str(self._origin))

    def _save(self, trainer: pl.Trainer, batch: int, *, is_finished: bool = False) -> None:
        loader = trainer.train_dataloader

        def write(draft: Path) -> None:
            if isinstance(loader, ResumableLoader):
                loader.go_to(trainer.current_epoch, batch)
            trainer.save_checkpoint(draft / self._state_file, weights_only=False)
            self._write_own(lambda: self._state(trainer), draft)
            if is_finished:  # the model is whole there, also where ModelParallelStrategy saves its shards
                strategy: Any = trainer.strategy
                strategy._save_distributed_checkpoint = False
                trainer.save_checkpoint(draft / FINAL / "model.ckpt", weights_only=True)
                strategy._save_distributed_checkpoint = True

        self._hand_over(write, self._progress(trainer), is_finished=is_finished)

    def _log_changed(self, trainer: pl.Trainer) -> None:
        """Log the values that have changed: Lightning keeps those of an earlier validation among them."""
        latest = self._log.metrics.latest
        changed = {name: value for name, value in _numbers(trainer).items() if latest.get(name) != value}
        self._log.add(trainer.current_epoch, trainer.global_step, changed)

    def _progress(self, trainer: pl.Trainer) -> Progress:
        numbers = _numbers(trainer)
        if self._link and self._link.contract.goal_unit == "steps":
            return Progress(trainer.global_step, _limit(trainer.max_steps), "steps", numbers)
        within = trainer.fit_loop.epoch_loop.batch_progress.current.completed / trainer.num_training_batches
        return Progress(trainer.current_epoch + within % 1, _limit(trainer.max_epochs), "epochs", numbers)


def _sharding_of(strategy: pl.strategies.Strategy) -> Sharding:
    """Return how the ranks share the model; raise CheckpointError unless each has all of it, or its shard by FSDP2."""
    allowed = (
        "one device, DDPStrategy, or FSDP2 by ModelParallelStrategy(data_parallel_size=ranks, tensor_parallel_size=1)"
    )
    if isinstance(strategy, pl.strategies.ModelParallelStrategy):
        if strategy.device_mesh["tensor_parallel"].size() > 1:
            raise CheckpointError(f"the strategy has tensor parallelism, allowed: {allowed}")
        if not strategy._save_distributed_checkpoint:
            raise CheckpointError("ModelParallelStrategy has save_distributed_checkpoint=False, allowed: True")
        return Sharding(is_fsdp=True)
    if not isinstance(strategy, (pl.strategies.SingleDeviceStrategy, pl.strategies.DDPStrategy)):
        raise CheckpointError(f"the strategy is {type(strategy).__name__}, allowed: {allowed}")
    return Sharding()


def _numbers(trainer: pl.Trainer) -> dict[str, float]:
    return {name: value.item() for name, value in trainer.callback_metrics.items() if value.numel() == 1}


def _limit(value: int | None) -> float | None:
    return None if value in (None, -1) else float(value)


def _begin_averaging(trainer: pl.Trainer, pl_module: Module) -> None:
    """Let StochasticWeightAveraging take its schedule again: Lightning calls no `on_train_epoch_start` in mid-epoch."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]  # which a connector sets
        if isinstance(callback, pl.callbacks.StochasticWeightAveraging) and callback._scheduler_state is not None:
            groups = trainer.optimizers[0].param_groups
            kept = [dict(group) for group in groups]
            callback.on_train_epoch_start(trainer, pl_module)
            for group, before in zip(groups, kept, strict=True):
                group.update(before)
