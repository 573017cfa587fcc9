import os

import torch
import torch.nn.functional as F
from cycling_utils import (
    AtomicDirectory,
    InterruptableDistributedSampler,
    MetricsTracker,
    TimestampedTimer,
    atomic_torch_save,
)
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 3, 32
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32)[:700] / 16, torch.tensor(digits.target)[:700])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
torch.distributed.init_process_group("nccl")
sampler = InterruptableDistributedSampler(data)
loader, metrics, timer = DataLoader(data, BATCH, sampler=sampler), MetricsTracker(), TimestampedTimer()
output = os.environ["CHECKPOINT_ARTIFACT_PATH"]
saver = AtomicDirectory(output, is_master=torch.distributed.get_rank() == 0)
latest = os.path.join(output, saver.symlink_name)
if os.path.islink(latest):
    saved = torch.load(os.path.join(os.readlink(latest), "checkpoint.pt"))
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    sampler.load_state_dict(saved["sampler"])
    metrics.load_state_dict(saved["metrics"])
for epoch in range(sampler.epoch, EPOCHS):
    with sampler.in_epoch(epoch):
        for inputs, targets in loader:
            loss = F.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            metrics.update({"loss": loss.item(), "batches": 1}).reduce().reset_local()
            sampler.advance(BATCH)
            if sampler.progress // BATCH % 5 == 0:
                folder = saver.prepare_checkpoint_directory()
                parts = {"model": model, "optimizer": optimizer, "sampler": sampler, "metrics": metrics}
                state = {name: part.state_dict() for name, part in parts.items()}
                atomic_torch_save(state, os.path.join(folder, "checkpoint.pt"))
                saver.symlink_latest(folder)
        metrics.end_epoch()
        timer.report(f"epoch {epoch}")
