"""unbroken's `Training`, by hand in a folder."""

import os

import small

from unbroken.training.torch import Saves, Training, seed_everything

out = small.folder()
seed_everything(0)
model = small.network()
optimizer = small.optimizer_of(model)
saves = Saves(steps=small.BATCHES, keep=small.EPOCHS + 1)
training = Training(state={"model": model, "optimizer": optimizer}, folder=out / "run", saves=saves)
loader = training.loader(small.data(), batch_size=small.SIZE, shuffle=False)


def link_checkpoints() -> None:
    """By the names that the referee reads the step from; those of the store have a date, which differs each time."""
    for state in (out / "run" / "checkpoints").glob("[0-9]*/state.pt"):
        link = out / f"checkpoint-{state.parent.name.split('_')[1]}"
        if not link.is_symlink():
            os.symlink(state, link)


small.tell_start(training.step)
for _ in training.epochs(small.EPOCHS * small.BATCHES, "steps"):
    for batch in training.batches(loader):
        link_checkpoints()
        optimizer.zero_grad()
        small.loss_of(model, batch).backward()
        optimizer.step()
training.finish({"final.pt": model.state_dict()})
link_checkpoints()
