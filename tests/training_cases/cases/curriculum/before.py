import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.manual_seed(11)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
dataset = TensorDataset(images[:1200], labels[:1200], torch.arange(1200))
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
losses = torch.ones(1200, dtype=torch.double)
for epoch in range(5):
    loader = DataLoader(dataset, 50, sampler=WeightedRandomSampler(0.05 + losses, 1000))
    for inputs, targets, indices in loader:
        each = nn.functional.cross_entropy(model(inputs), targets, reduction="none")
        losses[indices] = each.detach().double()
        optimizer.zero_grad()
        each.mean().backward()
        optimizer.step()
    print(f"epoch {epoch}: mean loss of all samples {losses.mean().item():.4f}")
torch.save(model.state_dict(), "model.pt")
