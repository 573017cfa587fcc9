import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SGDScheduleFree(torch.optim.Optimizer):
    def __init__(self, params, lr=0.5, momentum=0.9, warmup_steps=10):
        options = {"lr": lr, "momentum": momentum, "warmup": warmup_steps, "k": 0, "weight_sum": 0.0}
        super().__init__(params, {**options, "train_mode": False})

    @torch.no_grad()
    def _swap(self, train):
        for group in self.param_groups:
            if group["train_mode"] != train:
                for p in group["params"]:
                    if "z" in self.state[p]:
                        p.lerp_(self.state[p]["z"], 1 - group["momentum"] if train else 1 - 1 / group["momentum"])
                group["train_mode"] = train

    def train(self):
        self._swap(True)

    def eval(self):
        self._swap(False)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            if not group["train_mode"]:
                raise Exception("Optimizer was not in train mode when step is called.")
            lr = group["lr"] * min(1.0, (group["k"] + 1) / group["warmup"])
            group["weight_sum"] += lr**2
            ckp1 = lr**2 / group["weight_sum"]
            for p in group["params"]:
                state = self.state[p]
                if "z" not in state:
                    state["z"] = p.clone()
                p.lerp_(state["z"], ckp1).add_(p.grad, alpha=lr * (group["momentum"] * (1 - ckp1) - 1))
                state["z"].sub_(p.grad, alpha=lr)
            group["k"] += 1


torch.manual_seed(2)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
train_loader = DataLoader(TensorDataset(images[:1500], labels[:1500]), 50, shuffle=True)
model = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Dropout(0.1), nn.Linear(40, 10))
optimizer = SGDScheduleFree(model.parameters())
for epoch in range(4):
    model.train()
    optimizer.train()
    for data, target in train_loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
    model.eval()
    optimizer.eval()
    with torch.no_grad():
        accuracy = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    print(f"epoch {epoch}: accuracy {accuracy:.3f}")
torch.save(model.state_dict(), "model.pt")
