import random

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(8)
rng, picker = np.random.RandomState(8), random.Random(8)
model = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
meta_optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
inner_lr, inner_steps = 0.02, 2


def sample_task():
    amplitude, phase = rng.uniform(0.1, 5.0), rng.uniform(0, np.pi)
    x = rng.uniform(-5, 5, (20, 1)).astype("float32")
    return torch.from_numpy(x), torch.from_numpy(amplitude * np.sin(x + phase)).float()


def adapted_loss(x, y):
    params = dict(model.named_parameters())
    for _ in range(inner_steps):
        loss = nn.functional.mse_loss(functional_call(model, params, (x[:10],)), y[:10])
        grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        params = {name: p - inner_lr * g for (name, p), g in zip(params.items(), grads, strict=True)}
    return nn.functional.mse_loss(functional_call(model, params, (x[10:],)), y[10:])


for iteration in range(60):
    tasks = [sample_task() for _ in range(picker.choice([2, 3, 4]))]
    meta_loss = torch.stack([adapted_loss(x, y) for x, y in tasks]).mean()
    meta_optimizer.zero_grad()
    meta_loss.backward()
    meta_optimizer.step()
    if iteration % 10 == 0:
        print(f"iteration {iteration}: {meta_loss.item():.4f}")
torch.save(model.state_dict(), "maml.pt")
