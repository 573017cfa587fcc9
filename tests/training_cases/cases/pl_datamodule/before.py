import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy


class DigitsData(pl.LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        digits = load_digits()
        images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
        self.train_set = TensorDataset(images[:600], labels[:600])
        self.val_set = TensorDataset(images[600:700], labels[600:700])

    def train_dataloader(self):
        return DataLoader(self.train_set, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, 100)


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.4), nn.Linear(32, 10))
        self.val_acc = MulticlassAccuracy(10)

    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        scores = self.net(batch[0])
        self.val_acc(scores, batch[1])
        self.log("val_acc", self.val_acc, on_epoch=True)
        self.log("val_loss", F.cross_entropy(scores, batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-2)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"}}


pl.seed_everything(1)
model = Classifier()
best = ModelCheckpoint("best", monitor="val_acc", mode="max", save_top_k=1, enable_version_counter=False)
callbacks = [EarlyStopping("val_loss", patience=3), best]
trainer = pl.Trainer(
    max_epochs=9,
    accelerator="cpu",
    callbacks=callbacks,
    accumulate_grad_batches=2,
    val_check_interval=0.5,
    logger=False,
    enable_progress_bar=False,
)
trainer.fit(model, datamodule=DigitsData(), ckpt_path="last")
