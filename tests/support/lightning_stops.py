"""A program: a small training with Lightning, whole, and stopped before each of its batches; says what differs.

Each stop is a USR1 in a training step; what goes on is another Trainer with another model and another loader.
"""

import json
import logging
import os
import signal
import tempfile
import warnings
from pathlib import Path

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from unbroken.training.lightning import UnbrokenCallback

EPOCHS, BATCHES = 2, 5
CASES = {
    "plain": {},
    "validation within epochs": {"val_check_interval": 2},
    "accumulated gradients": {"accumulate_grad_batches": 2},
    "workers": {},
}
DATA = TensorDataset(torch.arange(3.0 * BATCHES).reshape(BATCHES, 3) + 1)


class Model(pl.LightningModule):
    def __init__(self, stop_in: int | None):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Linear(3, 1))
        self.stop_in, self.steps, self.trace = stop_in, 0, []

    def training_step(self, batch, batch_idx):
        self.steps += 1
        if self.steps == self.stop_in:
            os.kill(os.getpid(), signal.SIGUSR1)
        loop = self.trainer.fit_loop
        counts = [self.global_step, loop.epoch_loop._batches_that_stepped, loop.total_batch_idx]
        self.trace.append(["step", self.current_epoch, batch_idx, batch[0].sum().item(), *counts])
        return self.layers(batch[0]).pow(2).mean()

    def validation_step(self, batch, batch_idx):
        if not self.trainer.sanity_checking:
            self.trace.append(["validation", self.current_epoch, batch_idx])
        self.log("loss", self.layers(batch[0]).mean())

    def on_train_epoch_start(self):
        self.trace.append(["start", self.current_epoch])

    def on_train_epoch_end(self):
        self.trace.append(["end", self.current_epoch])

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), 0.1)
        # It lowers the rate at each epoch, so that one that is forgotten changes the weights.
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=100.0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "loss"}}


def train(folder: Path, resume: str, stop_in: int | None, options: dict[str, object], workers: int):
    """One segment: the trace, the weights and what it handed over last."""
    save = folder / "save"
    save.mkdir(parents=True)
    told = {"RUN": "demo", "RESUME": resume, "SAVE": save, "DEADLINE": 1e12, "STOP": folder / "stop"}
    told |= {"PROGRESS": folder / "progress.json", "GOAL": EPOCHS, "GOAL_UNIT": "epochs", "SAVE_SECONDS": 1e9}
    os.environ.update({f"UNBROKEN_{name}": str(value) for name, value in told.items()})
    torch.manual_seed(0)
    model, callback = Model(stop_in), UnbrokenCallback(seed=3)
    trainer = pl.Trainer(
        max_epochs=callback.goal,
        callbacks=[callback],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    loader = callback.loader(DATA, batch_size=1, num_workers=workers)
    try:
        trainer.fit(model, loader, DataLoader(DATA, batch_size=2), ckpt_path=callback.resume, weights_only=True)
    except SystemExit as end:
        assert end.code == 85, end.code
    weights = [value.tolist() for value in model.state_dict().values()]
    return model.trace, weights, str(max(save.glob("*.ready"), default=""))


def same_stops(case: str) -> list[int]:
    """The stops after which the training did the same as in one piece."""
    options, workers = CASES[case], 2 if case == "workers" else 0
    same = []
    with tempfile.TemporaryDirectory() as root:
        expected, weights, _ = train(Path(root) / "whole", "", None, options, workers)
        for stop in range(1, EPOCHS * BATCHES):
            before, _, resume = train(Path(root) / f"{stop}-1", "", stop, options, workers)
            after, found, _ = train(Path(root) / f"{stop}-2", resume, None, options, workers)
            if (before + after, found) == (expected, weights):
                same.append(stop)
    return same


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of few workers and few batches
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    for name in CASES:
        print(json.dumps({"case": name, "same": same_stops(name)}), flush=True)
