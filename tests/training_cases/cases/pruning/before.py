import copy

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.utils import prune
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
loader = DataLoader(TensorDataset(images[:1500], labels[:1500]), 64, shuffle=True)
model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 10))
layers = [module for module in model if isinstance(module, nn.Linear)]
initial_state = copy.deepcopy(model.state_dict())
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)


def prune_by_percentile(amount=0.3):
    for layer in layers:
        prune.l1_unstructured(layer, "weight", amount)


def rewind():
    with torch.no_grad():
        for number, layer in zip((0, 2, 4), layers, strict=True):
            layer.weight_orig.copy_(initial_state[f"{number}.weight"])
            layer.bias.copy_(initial_state[f"{number}.bias"])


for epoch in range(6):
    if epoch and epoch % 2 == 0:
        prune_by_percentile()
        rewind()
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        accuracy = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    left = sum(int((layer.weight != 0).sum()) for layer in layers)
    print(f"epoch {epoch}: {left} weights, accuracy {accuracy:.3f}")
torch.save(model.state_dict(), "ticket.pt")
