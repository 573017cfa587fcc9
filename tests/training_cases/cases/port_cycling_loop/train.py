from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from unbroken.training import AtomicDirectory, atomic_torch_save, verified_torch_load
from unbroken.training.torch import Loaders, Stop

EPOCHS, BATCH = 3, 32
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32)[:700] / 16, torch.tensor(digits.target)[:700])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loaders, step = Loaders(seed=0), 0
loader = loaders.loader(data, BATCH)
parts = {"model": model, "optimizer": optimizer, "loaders": loaders}
directory, stop = AtomicDirectory("run"), Stop(stop_file="run/stop")
if directory.newest:
    saved = verified_torch_load(directory.newest / "checkpoint.pt")
    step = saved["step"]
    for name, part in parts.items():
        part.load_state_dict(saved[name])
while step < EPOCHS * len(loader):
    for inputs, targets in loader:  # the rest of the pass that was begun
        loss = F.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 5 == 0 or stop.requested:
            with directory.checkpoint(step) as draft:
                state = {name: part.state_dict() for name, part in parts.items()}
                atomic_torch_save({**state, "step": step}, draft / "checkpoint.pt")
        if stop.requested:
            directory.close()
            stop.leave()
Path("run/final").mkdir(exist_ok=True)
torch.save(model.state_dict(), "run/final/model.pt")
