import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import BaseFinetuning
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class MilestonesFinetuning(BaseFinetuning):
    def __init__(self, milestones=(1, 2)):
        super().__init__()
        self.milestones = milestones

    def freeze_before_training(self, pl_module):
        self.freeze(modules=pl_module.features)

    def finetune_function(self, pl_module, epoch, optimizer):
        if epoch == self.milestones[0]:
            self.unfreeze_and_add_param_group(pl_module.features[-3:], optimizer, train_bn=False)
        elif epoch == self.milestones[1]:
            self.unfreeze_and_add_param_group(pl_module.features[:-3], optimizer, train_bn=False)


class Transfer(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU()
        )
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(32, 10))

    def training_step(self, batch, batch_idx):
        loss = F.cross_entropy(self.head(self.features(batch[0])), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_acc", (self.head(self.features(batch[0])).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        optimizer = torch.optim.Adam(trained, lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 2], gamma=0.3)]


pl.seed_everything(1)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
train_set, val_set = TensorDataset(images[:600], labels[:600]), TensorDataset(images[600:700], labels[600:700])
model = Transfer()
quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
trainer = pl.Trainer(max_epochs=4, callbacks=[MilestonesFinetuning()], **quiet)
trainer.fit(model, DataLoader(train_set, 32, shuffle=True), DataLoader(val_set, 100), ckpt_path="last")
