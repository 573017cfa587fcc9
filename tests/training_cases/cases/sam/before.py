import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self):
        grads = [p.grad.norm(p=2) for group in self.param_groups for p in group["params"]]
        for group in self.param_groups:
            scale = group["rho"] / (torch.norm(torch.stack(grads), p=2) + 1e-12)
            for p in group["params"]:
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * scale)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        self.zero_grad()

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.base_optimizer.param_groups = self.param_groups


torch.manual_seed(42)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
optimizer = SAM(model.parameters(), torch.optim.SGD, rho=0.05, lr=0.1, momentum=0.9, weight_decay=0.0005)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.3)
loader = DataLoader(TensorDataset(images[:1500], labels[:1500]), 64, shuffle=True)

for epoch in range(4):
    model.train()
    for inputs, targets in loader:
        loss = cross_entropy(model(inputs), targets, label_smoothing=0.1)
        loss.backward()
        optimizer.first_step()
        cross_entropy(model(inputs), targets, label_smoothing=0.1).backward()
        optimizer.second_step()
    scheduler.step()
    model.eval()
    with torch.no_grad():
        accuracy = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    print(f"epoch {epoch}: accuracy {accuracy:.3f}")
torch.save(model.state_dict(), "model.pt")
