import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from unbroken.training.lightning import UnbrokenCallback


class LitLSTM(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(2, 16, batch_first=True), nn.Linear(16, 2)
        self.automatic_optimization = False
        self.register_buffer("h", torch.zeros(1, 1, 16))
        self.register_buffer("c", torch.zeros(1, 1, 16))

    def training_step(self, batch, batch_idx):
        optimizer, (inputs, targets) = self.optimizers(), batch
        hidden = (self.h, self.c)
        for part, target in zip(inputs.split(10, dim=1), targets.split(10, dim=1), strict=True):
            output, hidden = self.lstm(part, hidden)
            loss = F.mse_loss(self.out(output), target)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            hidden = tuple(each.detach() for each in hidden)
        self.h, self.c = hidden
        self.log("loss", loss)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


pl.seed_everything(1)
waves = torch.sin(torch.linspace(0, 60, 1201)).unfold(0, 2, 1)
inputs, targets = waves[:-1][:1000].reshape(20, 50, 2), waves[1:][:1000].reshape(20, 50, 2)
model = LitLSTM()
quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
unbroken = UnbrokenCallback(seed=1)
trainer = pl.Trainer(max_epochs=2, callbacks=[unbroken], **quiet)
loader = unbroken.loader(TensorDataset(inputs, targets), 1, shuffle=False)
trainer.fit(model, loader, ckpt_path=unbroken.resume, weights_only=True)
