import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, random_split

from unbroken.training.lightning import UnbrokenCallback


class LitAutoEncoder(pl.LightningModule):
    def __init__(self, hidden=32):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 3))
        self.decoder = nn.Sequential(nn.Linear(3, hidden), nn.ReLU(), nn.Linear(hidden, 64))

    def training_step(self, batch, batch_idx):
        loss = F.mse_loss(self.decoder(self.encoder(batch + 0.05 * torch.randn_like(batch))), batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", F.mse_loss(self.decoder(self.encoder(batch)), batch))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=72)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


pl.seed_everything(1)
images = torch.tensor(load_digits().data, dtype=torch.float32)[:800] / 16
train_set, val_set = random_split(images, [700, 100], torch.Generator().manual_seed(2))
model = LitAutoEncoder()
unbroken = UnbrokenCallback(seed=1)
trainer = pl.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False, callbacks=[unbroken])
loader = unbroken.loader(train_set, 32)
trainer.fit(model, loader, DataLoader(val_set, 100), ckpt_path=unbroken.resume, weights_only=True)
