"""As many scripts do it: `torch.save` over the checkpoint before."""

import small
import torch
from torch.utils.data import DataLoader

out = small.folder()
newest = out / "checkpoint.pt"
model = small.network()
optimizer = small.optimizer_of(model)
begun = 0
if newest.exists():
    state = torch.load(newest)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    begun = state["epoch"]
small.tell_start(begun * small.BATCHES)
for epoch in range(begun, small.EPOCHS):
    for batch in DataLoader(small.data(), batch_size=small.SIZE):
        optimizer.zero_grad()
        small.loss_of(model, batch).backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}, newest)
torch.save(model.state_dict(), out / "final.pt")
