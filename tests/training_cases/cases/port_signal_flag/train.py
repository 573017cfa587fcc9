import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from unbroken.training.torch import Training

EPOCHS = 3


torch.manual_seed(0)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32)[:800] / 16, torch.tensor(digits.target)[:800])
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=75)
training = Training(state={"model": model, "optimizer": optimizer, "schedule": schedule})
loader = training.loader(data, 32)
for _ in training.epochs(EPOCHS):
    for inputs, targets in training.batches(loader):
        loss = F.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        training.log(loss=loss.item())
training.finish({"model.pt": model.state_dict()})
