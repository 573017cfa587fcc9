"""A training of several ranks with Lightning, small enough for a test: run as a program."""

import logging
import os
import signal
import sys
import warnings

import torch
from pytorch_lightning import LightningModule, Trainer, seed_everything
from pytorch_lightning.strategies import ModelParallelStrategy
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils.data import DataLoader, TensorDataset

from unbroken.training.lightning import UnbrokenCallback

DEEDS = {"signal": signal.SIGUSR1, "kill": signal.SIGKILL}
FSDP2 = "FSDP2" in os.environ
# 7 steps of each of two ranks, the last with 2 samples of each.
DATA = TensorDataset(torch.arange(3.0 * 52).reshape(52, 3) / 52)


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
        self.steps = 0

    def configure_model(self):
        if FSDP2 and not isinstance(self.layers, FSDPModule):
            fully_shard(self.layers, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, batch_idx):
        assert isinstance(self.layers, FSDPModule) == FSDP2
        self.steps += 1
        for deed, step in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
            if self.steps == int(step) and self.global_rank == self.trainer.world_size - 1:
                os.kill(os.getpid(), DEEDS[deed])
        return self.layers(batch[0]).pow(2).mean()

    def validation_step(self, batch, batch_idx):
        self.log("loss", self.layers(batch[0]).mean(), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), 0.1)
        # It lowers the rate at each epoch, so that one that is forgotten changes the weights.
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=100.0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "loss"}}

    def on_fit_start(self):
        torch.manual_seed(self.global_rank)  # the ranks draw different masks


warnings.simplefilter("ignore")  # of few workers and few batches
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
torch.set_num_threads(1)
seed_everything(0, verbose=False)
unbroken = UnbrokenCallback(seed=3)
trainer = Trainer(
    max_epochs=unbroken.goal,
    callbacks=[unbroken],
    accelerator="cpu",
    strategy=ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1) if FSDP2 else "auto",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    accumulate_grad_batches=2,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(
    Model(),
    unbroken.loader(DATA, batch_size=4),
    DataLoader(DATA, batch_size=13),
    ckpt_path=unbroken.resume,
    weights_only=True,
)
