from pathlib import Path

import submitit
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Train:
    """After a preemption it begins with the epoch in which it was."""

    def __init__(self):
        self.model = self.optimizer = None
        self.epoch = 0

    def __call__(self, path, epochs):
        digits = load_digits()
        data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        if Path(path).exists():
            saved = torch.load(path)
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.epoch = saved["epoch"]
        for epoch in range(self.epoch, epochs):
            self.epoch = epoch
            for inputs, targets in DataLoader(data, 64, shuffle=True):
                loss = F.cross_entropy(self.model(inputs), targets)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()

    def checkpoint(self, path, epochs):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": self.epoch}
        torch.save(state, path)
        return submitit.helpers.DelayedSubmission(Train(), path, epochs)


executor = submitit.AutoExecutor("logs", cluster="debug")
executor.update_parameters(timeout_min=30, slurm_max_num_timeout=10)
executor.submit(Train(), "checkpoint.pt", 3).result()
