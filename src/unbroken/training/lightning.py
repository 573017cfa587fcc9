"""Run Lightning's Trainer in segments: hand over its checkpoints, leave in time, resume before any batch."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset

from unbroken.errors import CheckpointError
from unbroken.program.contract import FINAL
from unbroken.store.checkpoint import read_import
from unbroken.store.progress import Progress
from unbroken.training.core.save_policy import Saves
from unbroken.training.core.save_schedule import Phase
from unbroken.training.loggers import Logger
from unbroken.training.torch.framework_adapter import Adapter, Omitted
from unbroken.training.torch.framework_session import OFTEN, FrameworkSession, Wish, refuse
from unbroken.training.torch.framework_shards import Sharding
from unbroken.training.torch.loader import ResumableLoader, resumable_loader
from unbroken.training.torch.samplers import Share

if TYPE_CHECKING:
    import pytorch_lightning as pl
else:  # the same code under two names, and a callback of one is none for the other: the one that the script uses
    NAMES = ("lightning.pytorch", "pytorch_lightning")
    pl = importlib.import_module(next((name for name in NAMES if name in sys.modules), NAMES[1]))

Module = pl.LightningModule
STATE_FILE = "lightning.ckpt"
MODEL_FILE = "model.ckpt"


class UnbrokenCallback(Adapter, pl.callbacks.Checkpoint):
    """Save through unbroken and leave in time; Lightning calls it as the last of the callbacks.

    `trainer.fit(model, callback.loader(data, batch_size=...), ckpt_path=callback.resume, weights_only=True)`.  The
    model is in `final/model.ckpt` of a run that is finished.  Make it before the Trainer; `seed` is that of the order
    of the data.  Started by hand, on one process, it keeps its checkpoints in `folder` (or UNBROKEN_FOLDER) and
    resumes from there; without one it saves nothing.  `saves` says how often; `loggers` get what the
    module logs, every `log_every_n_steps`.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        folder: str | os.PathLike[str] | None = None,
        saves: Saves = OFTEN,
        loggers: Sequence[Logger] = (),
    ) -> None:
        self._seed, self._share = seed, Share()
        # Lightning sets WORLD_SIZE too, for processes that it starts itself, and then no RANK.
        self._started = int(os.environ.get("WORLD_SIZE") or 1) if "RANK" in os.environ else 1
        self._keeper = FrameworkSession({"lightning": str(vars(pl)["__version__"])}, folder, saves, loggers)
        self._omitted: Omitted | None = None
        self._loaded: Mapping[str, Any] | None = None  # what is put back before the first batch
        self._loaders: list[ResumableLoader] = []
        self._note = read_import(self._keeper.resume)  # of a checkpoint of Lightning's alone
        self._epoch = self._note.epoch if self._note else 0
        self._has_trained, self._logged = False, dict[str, float]()

    @property
    def resume(self) -> str | None:
        """Return the value for `trainer.fit(ckpt_path=...)`; None if the training begins at zero."""
        name = self._note.path if self._note else STATE_FILE
        return str(self._keeper.resume / name) if self._keeper.resume else None

    def loader(self, dataset: Dataset[Any], batch_size: int = 1, **options: Any) -> ResumableLoader:
        """Return a DataLoader like that of `Training.loader`; it begins in mid-epoch without reading what is before."""
        loader = resumable_loader(dataset, batch_size, self._seed, **options)
        loader.share_with(self._share)
        loader.go_to(self._epoch, 0)
        self._loaders.append(loader)
        return loader

    # --- what Lightning calls ---

    def setup(self, trainer: pl.Trainer, pl_module: Module, stage: str) -> None:
        """Raise CheckpointError if unbroken did not start these processes, or each has only a part of the model."""
        self._share = Share(trainer.global_rank, trainer.world_size)
        self._omitted = Omitted({"model": pl_module})
        for loader in self._loaders:
            loader.share_with(self._share)
        if self._keeper.contract is None:
            self._keeper.join()
            return
        if trainer.world_size != self._started:
            refuse(
                CheckpointError,
                f"{_processes(trainer.world_size)}, and unbroken has started {self._started}; type "
                f"ranks: {trainer.world_size} in the settings, or Trainer(devices={self._started}, ...)",
            )
        self._keeper.join(lambda: _sharding_of(trainer.strategy))

    def on_train_start(self, trainer: pl.Trainer, pl_module: Module) -> None:
        """Raise TypeError if the data cannot be resumed."""
        if self._keeper.contract is None:
            return
        # Lightning ends the process by itself after TERM, without a checkpoint and as if all were well.
        self._keeper.listen()
        self._keeper.look_ahead(trainer.accumulate_grad_batches - 1)
        if not isinstance(trainer.train_dataloader, ResumableLoader):
            refuse(
                TypeError,
                f"the training data come from a {type(trainer.train_dataloader).__name__}, "
                "allowed: callback.loader(dataset, ...), which can begin in the middle of an epoch",
            )

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Module, batch: Any, batch_idx: int) -> None:
        """Save or leave here: everything of the batch before is done, with its validation and its epoch's end."""
        if self._loaded is not None:
            own = self._keeper.own(self._loaded)
            _put_back(trainer, self._loaded, own)
            _begin_averaging(trainer, pl_module)
            if self._omitted:
                self._omitted.put_back(own, str(self._keeper.resume))
            self._loaded = None
        if self._has_trained and (batch_idx == 0 or _is_logged(trainer)):
            self._log(trainer)
        is_last = batch_idx + 1 == trainer.num_training_batches
        ended = Phase.END if batch_idx == 0 else Phase.BATCH
        # Lightning asks before the first batch too.
        step = trainer.global_step + (not self._has_trained)
        wish = self._keeper.step(self._progress(trainer), step, ended, Phase.END if is_last else Phase.BATCH)
        # An attempt that leaves before the first batch has made no progress, and counts as a failure.
        if wish is not Wish.GO_ON and self._has_trained and _has_no_gradients(trainer, batch_idx):
            self._save(trainer, batch_idx)
            if wish is Wish.LEAVE:
                self._keeper.leave()
        self._has_trained = True

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Module) -> None:
        """Let Lightning run what belongs to an epoch's end even after a restart in the middle of it."""
        # Lightning does not ask a scheduler that watches a metric in an epoch that it calls restarted.
        # Not by `restarting`, which sets itself to True with max_steps: no epoch after this one would have a batch.
        trainer.fit_loop._restarting = trainer.fit_loop.epoch_loop._restarting = False

    def on_train_end(self, trainer: pl.Trainer, pl_module: Module) -> None:
        """Hand over the last checkpoint, with the model in its folder `final/`."""
        self._log(trainer)
        self._save(trainer, 0, is_finished=True)

    def state_dict(self) -> dict[str, Any]:
        """Return what Lightning does not save; more follows in `on_save_checkpoint`."""
        return {**(self._omitted.state() if self._omitted else {}), "ranks": self._share.ranks}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state until the first batch: what Lightning does before that draws from the generators."""
        self._keeper.check_ranks(state_dict.get("ranks", 1))
        self._loaded = state_dict
        self._begin_at(state_dict["epoch"])

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: Module, checkpoint: dict[str, Any]) -> None:
        """Raise CheckpointError if an imported checkpoint is from mid-epoch: it lacks the loader's place."""
        if self._note is None:
            return
        fit = checkpoint["loops"]["fit_loop"]
        batches = fit["epoch_loop.batch_progress"]
        if not batches["is_last_batch"] or batches["current"]["ready"] != batches["current"]["completed"]:
            refuse(
                CheckpointError,
                f"{self._note.path}, which was imported, is from the middle of an epoch; allowed: the end of one, such "
                "as ModelCheckpoint(every_n_epochs=1) saves",
            )
        self._begin_at(fit["epoch_progress"]["current"]["processed"])

    def _begin_at(self, epoch: int) -> None:
        """Tell the loaders: Lightning starts its workers before it says which epoch it is."""
        self._epoch = epoch
        for loader in self._loaders:
            loader.go_to(epoch, 0)

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: Module, checkpoint: dict[str, Any]) -> None:
        """Add the metrics that schedulers watch, and what Lightning counts twice when it resumes from here."""
        checkpoint["callbacks"][self.state_key] |= {
            "epoch": trainer.current_epoch,
            "stepped": trainer.fit_loop.epoch_loop._batches_that_stepped,
            "metrics": dict(trainer.callback_metrics),
        }

    # --- our own ---

    def _save(self, trainer: pl.Trainer, batch: int, *, is_finished: bool = False) -> None:
        loader = trainer.train_dataloader

        def write(draft: Path) -> None:
            if isinstance(loader, ResumableLoader):
                loader.go_to(trainer.current_epoch, batch)
            trainer.save_checkpoint(draft / STATE_FILE, weights_only=False)
            self._keeper.write_own(self.state_dict() | {"metrics": dict(trainer.callback_metrics)}, draft)
            if is_finished:
                with _whole_model(trainer.strategy):
                    trainer.save_checkpoint(draft / FINAL / MODEL_FILE, weights_only=True)

        self._keeper.hand_over(write, self._progress(trainer), is_finished=is_finished)

    def _log(self, trainer: pl.Trainer) -> None:
        """Log the values that have changed: Lightning keeps those of an earlier validation among them."""
        numbers = _numbers(trainer)
        changed = {name: value for name, value in numbers.items() if self._logged.get(name) != value}
        self._logged = numbers
        self._keeper.log.log(trainer.global_step, changed, trainer.current_epoch)

    def _progress(self, trainer: pl.Trainer) -> Progress:
        numbers = _numbers(trainer)
        if self._keeper.counts_steps:
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


@contextmanager
def _whole_model(strategy: pl.strategies.Strategy) -> Iterator[None]:
    """Let the first rank write the whole model inside, where checkpoints have its shards."""
    if not isinstance(strategy, pl.strategies.ModelParallelStrategy):
        yield
        return
    strategy._save_distributed_checkpoint = False
    try:
        yield
    finally:
        strategy._save_distributed_checkpoint = True


def _is_logged(trainer: pl.Trainer) -> bool:
    return bool(trainer.global_step % (getattr(trainer, "log_every_n_steps", 0) or 1) == 0)


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


def _has_no_gradients(trainer: pl.Trainer, batch_idx: int) -> bool:
    """Return True if Lightning has added up no gradients for a later batch: it begins each epoch with a new group.

    Gradients of a manual optimization are saved.
    """
    return batch_idx % trainer.accumulate_grad_batches == 0


def _processes(count: int) -> str:
    return f"{count} processes train" if count > 1 else "each process trains for itself"


def _put_back(trainer: pl.Trainer, state: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Restore, before the first batch after a restart, this rank's own state and what Lightning has counted again."""
    loop = trainer.fit_loop.epoch_loop
    loop._batches_that_stepped = state["stepped"]
    loop.batch_progress.total.ready = loop.batch_progress.total.completed + 1
    trainer.callback_metrics.update(own["metrics"])
