import os
import signal

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.plugins.environments import SLURMEnvironment
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))

    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self.layers(batch[0] + 0.1 * torch.randn_like(batch[0])), batch[1])
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


pl.seed_everything(0)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32)[:800] / 16, torch.tensor(digits.target)[:800])
quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
is_in_slurm = "SLURM_NTASKS" in os.environ
plugins = [SLURMEnvironment(auto_requeue=True, requeue_signal=signal.SIGUSR1)] if is_in_slurm else []
trainer = pl.Trainer(max_epochs=3, plugins=plugins, **quiet)
trainer.fit(Net(), DataLoader(data, 32, shuffle=True))
