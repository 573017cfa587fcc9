import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitLSTM(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(2, 16, batch_first=True), nn.Linear(16, 2)
        self.automatic_optimization = False
        self.hidden = None

    def training_step(self, batch, batch_idx):
        optimizer, (inputs, targets) = self.optimizers(), batch
        hidden = self.hidden
        for part, target in zip(inputs.split(10, dim=1), targets.split(10, dim=1), strict=True):
            output, hidden = self.lstm(part, hidden)
            loss = F.mse_loss(self.out(output), target)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            hidden = tuple(each.detach() for each in hidden)
        self.hidden = hidden
        self.log("loss", loss)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


pl.seed_everything(1)
waves = torch.sin(torch.linspace(0, 60, 1201)).unfold(0, 2, 1)
inputs, targets = waves[:-1][:1000].reshape(20, 50, 2), waves[1:][:1000].reshape(20, 50, 2)
model = LitLSTM()
quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
trainer = pl.Trainer(max_epochs=2, **quiet)
trainer.fit(model, DataLoader(TensorDataset(inputs, targets), 1), ckpt_path="last")
