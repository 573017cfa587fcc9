import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from unbroken.training.torch import Training


def train(epochs):
    digits = load_digits()
    data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    training = Training(state={"model": model, "optimizer": optimizer})
    loader = training.loader(data, 64)
    for _ in training.epochs(epochs):
        for inputs, targets in training.batches(loader):
            loss = F.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            training.log(loss=loss.item())
    training.finish({"model.pt": model.state_dict()})


train(3)  # the config says the minutes of a segment and how many there may be
