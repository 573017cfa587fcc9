from pathlib import Path

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))

    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self.layers(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


pl.seed_everything(0)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32)[:800] / 16, torch.tensor(digits.target)[:800])
quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
saving = ModelCheckpoint("checkpoints", save_last=True, every_n_epochs=1)
trainer = pl.Trainer(max_epochs=3, callbacks=[saving], **quiet)
last = Path("checkpoints/last.ckpt")
trainer.fit(Net(), DataLoader(data, 32, shuffle=True), ckpt_path=last if last.exists() else None)
