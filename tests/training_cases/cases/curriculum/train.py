import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from unbroken.training.torch import Training, Variables

torch.manual_seed(11)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
dataset = TensorDataset(images[:1200], labels[:1200], torch.arange(1200))
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
variables = Variables(losses=torch.ones(1200, dtype=torch.double))


def draw(generator):
    return torch.multinomial(0.05 + variables["losses"], 1000, replacement=True, generator=generator)


training = Training(state={"model": model, "optimizer": optimizer, "variables": variables}, seed=11)
loader = training.loader(dataset, 50, order=draw)
for epoch in training.epochs(5):
    losses = variables["losses"]
    for inputs, targets, indices in training.batches(loader):
        each = nn.functional.cross_entropy(model(inputs), targets, reduction="none")
        losses[indices] = each.detach().double()
        optimizer.zero_grad()
        each.mean().backward()
        optimizer.step()
        training.log(loss=each.mean().item())
    print(f"epoch {epoch}: mean loss of all samples {losses.mean().item():.4f}")
training.finish({"model.pt": model.state_dict()})
