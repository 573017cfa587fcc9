import os
import signal
import sys

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, CHECKPOINT = 3, "checkpoint.pt"
is_asked = False


def ask(signum, frame):
    global is_asked
    is_asked = True


signal.signal(signal.SIGUSR1, ask)  # from the job script: #SBATCH --signal=B:USR1@120, trap, kill -USR1
torch.manual_seed(0)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32)[:800] / 16, torch.tensor(digits.target)[:800])
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=75)
first_epoch = first_batch = 0
if os.path.exists(CHECKPOINT):
    saved = torch.load(CHECKPOINT)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["schedule"])
    first_epoch, first_batch = saved["epoch"], saved["batch"] + 1
for epoch in range(first_epoch, EPOCHS):
    loader = DataLoader(data, 32, shuffle=True, generator=torch.Generator().manual_seed(epoch))
    for batch, (inputs, targets) in enumerate(loader):
        if epoch == first_epoch and batch < first_batch:
            continue
        loss = F.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if is_asked:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            state |= {"schedule": schedule.state_dict(), "epoch": epoch, "batch": batch}
            torch.save(state, CHECKPOINT)
            sys.exit(85)  # the job script: scontrol requeue $SLURM_JOB_ID
torch.save(model.state_dict(), "model.pt")
