import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset
from torchmetrics import MeanMetric

from unbroken.training.torch import Training

EPOCHS, BATCH = 3, 32
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32)[:700] / 16, torch.tensor(digits.target)[:700])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
mean_loss = MeanMetric()
training = Training(state={"model": model, "optimizer": optimizer}, per_rank={"mean_loss": mean_loss})
loader = training.loader(data, BATCH)
for _ in training.epochs(EPOCHS):
    for inputs, targets in training.batches(loader):
        loss = F.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean_loss.update(loss.detach())
    training.log(mean_loss=mean_loss.compute().item())
    mean_loss.reset()
training.finish({"model.pt": model.state_dict()})
