"""Lightning's own checkpoints: every one kept, resumed by `ckpt_path="last"`."""

import pytorch_lightning as pl
import small
import torch
from torch.utils.data import DataLoader

out = small.folder()


class Network(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = small.network()
        self.has_begun = False

    def training_step(self, batch, number):
        return small.loss_of(self.network, batch)

    def configure_optimizers(self):
        return small.optimizer_of(self.network)

    def on_train_start(self):
        self.has_begun = True
        small.tell_start(self.global_step)


model = Network()
trainer = pl.Trainer(
    max_epochs=small.EPOCHS,
    accelerator="cpu",
    devices=1,
    callbacks=[
        pl.callbacks.ModelCheckpoint(dirpath=out, filename="checkpoint-{step}", save_top_k=-1, save_last=True),
    ],
    default_root_dir=out,
    enable_progress_bar=False,
    enable_model_summary=False,
    logger=False,
)
trainer.fit(model, DataLoader(small.data(), batch_size=small.SIZE), ckpt_path="last")
if not model.has_begun:  # it was at its end
    small.tell_start(trainer.global_step)
torch.save(model.network.state_dict(), out / "final.pt")
