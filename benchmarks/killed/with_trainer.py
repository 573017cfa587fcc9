"""The Trainer of transformers, resumed from the newest checkpoint that it finds, as its examples do."""

import small
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

out = small.folder()


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.network = small.network()

    def forward(self, inputs, targets):
        return {"loss": small.loss_of(self.network, (inputs, targets))}


class TellStart(TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        small.tell_start(state.global_step)


def together(samples):
    inputs, targets = zip(*samples, strict=True)
    return {"inputs": torch.stack(inputs), "targets": torch.stack(targets)}


model = Network()
arguments = TrainingArguments(
    output_dir=str(out),
    num_train_epochs=small.EPOCHS,
    per_device_train_batch_size=small.SIZE,
    save_steps=small.BATCHES,
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(model, arguments, data_collator=together, train_dataset=small.data(), callbacks=[TellStart()])
trainer.train(resume_from_checkpoint=get_last_checkpoint(str(out)))
torch.save(model.network.state_dict(), out / "final.pt")
