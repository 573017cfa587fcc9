from concurrent.futures import ThreadPoolExecutor

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)


def objective(lr):
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    train_loader = DataLoader(TensorDataset(images[:1400], labels[:1400]), 50, shuffle=True)
    for _ in range(2):
        for data, target in train_loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data), target).backward()
            optimizer.step()
    with torch.no_grad():
        return (model(images[1400:]).argmax(1) == labels[1400:]).float().mean().item()


with ThreadPoolExecutor(2) as pool:
    found = list(pool.map(objective, [0.001, 0.003, 0.01, 0.03]))
print(f"best accuracy: {max(found):.3f}")
