import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader


class GAN(pl.LightningModule):
    def __init__(self, latent=8):
        super().__init__()
        self.automatic_optimization = False
        self.latent = latent
        self.generator = nn.Sequential(nn.Linear(latent, 32), nn.BatchNorm1d(32), nn.LeakyReLU(0.2), nn.Linear(32, 64))
        self.discriminator = nn.Sequential(nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(32, 1))

    def training_step(self, images, batch_idx):
        generate, discriminate = self.optimizers()
        z = torch.randn(len(images), self.latent)
        real, fake = torch.ones(len(images), 1), torch.zeros(len(images), 1)

        self.toggle_optimizer(generate)
        g_loss = F.binary_cross_entropy_with_logits(self.discriminator(torch.sigmoid(self.generator(z))), real)
        self.log("g_loss", g_loss)
        self.manual_backward(g_loss)
        generate.step()
        generate.zero_grad()
        self.untoggle_optimizer(generate)

        self.toggle_optimizer(discriminate)
        images_made = torch.sigmoid(self.generator(z)).detach()
        d_loss = F.binary_cross_entropy_with_logits(self.discriminator(images), real)
        d_loss = (d_loss + F.binary_cross_entropy_with_logits(self.discriminator(images_made), fake)) / 2
        self.log("d_loss", d_loss)
        self.manual_backward(d_loss)
        discriminate.step()
        discriminate.zero_grad()
        self.untoggle_optimizer(discriminate)

    def configure_optimizers(self):
        generate = torch.optim.Adam(self.generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
        return [generate, torch.optim.Adam(self.discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))], []


pl.seed_everything(1)
images = torch.tensor(load_digits().data, dtype=torch.float32)[:640] / 16
model = GAN()
quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
trainer = pl.Trainer(max_epochs=3, **quiet)
trainer.fit(model, DataLoader(images, 32, shuffle=True), ckpt_path="last")
