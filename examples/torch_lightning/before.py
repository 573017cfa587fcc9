"""A small network learns to read digits, with Lightning.

A later job starts from zero; `unbroken init torch before.py` shows what it needs.
"""

import os
import sys
import time

import torch
from pytorch_lightning import LightningModule, Trainer, seed_everything
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

PAUSE_SECONDS = float(sys.argv[1]) if sys.argv[1:] else 0.0  # after each step, to have time to watch


class Digits(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 10)
        )

    def training_step(self, batch, batch_idx):
        images, digits = batch
        time.sleep(PAUSE_SECONDS)
        return torch.nn.functional.cross_entropy(self.layers(images), digits)

    def validation_step(self, batch, batch_idx):
        images, digits = batch
        outputs = self.layers(images)
        # With sync_dist all ranks see the mean of all, so their schedulers decide the same.
        self.log("loss", torch.nn.functional.cross_entropy(outputs, digits), sync_dist=True)
        self.log("accuracy", (outputs.argmax(1) == digits).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=3e-3)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "loss"}}


torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
seed_everything(0, verbose=False)
images, digits = (torch.as_tensor(values) for values in load_digits(return_X_y=True))
images = images.float() / 16
train, test = TensorDataset(images[:1500], digits[:1500]), TensorDataset(images[1500:], digits[1500:])

trainer = Trainer(
    max_epochs=4,
    accelerator="cpu",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(
    Digits(),
    DataLoader(train, batch_size=100, shuffle=True),  # 15 steps an epoch
    DataLoader(test, batch_size=99),
)
