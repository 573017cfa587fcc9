import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import StochasticWeightAveraging
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))

    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)]


pl.seed_everything(1)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32)[:480] / 16, torch.tensor(digits.target)[:480])
model = Digits()
averaging = StochasticWeightAveraging(swa_lrs=1e-2, swa_epoch_start=2, annealing_epochs=2)
quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
trainer = pl.Trainer(max_epochs=6, callbacks=[averaging], **quiet)
trainer.fit(model, DataLoader(data, 32, shuffle=True), ckpt_path="last")
