import math

import torch
from torch import nn

from unbroken.training.torch import Training, Variables

torch.manual_seed(1234)
adam_steps, lbfgs_steps, nu = 60, 8, 0.01 / math.pi
net = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1))
x0 = torch.linspace(-1, 1, 40).view(-1, 1)
initial = torch.cat([x0, torch.zeros_like(x0)], 1)
u0 = -torch.sin(math.pi * x0)
optimizer_adam = torch.optim.Adam(net.parameters(), lr=0.005)
optimizer_lbfgs = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")


def sample():
    return torch.rand(200, 2) * torch.tensor([2.0, 1.0]) - torch.tensor([1.0, 0.0])


def loss_of(points):
    points = points.clone().requires_grad_(True)
    u = net(points)
    (du,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    (du2,) = torch.autograd.grad(du[:, 0].sum(), points, create_graph=True)
    residual = du[:, 1:] + u * du[:, :1] - nu * du2[:, :1]
    return ((net(initial) - u0) ** 2).mean() + (residual**2).mean()


def closure():
    optimizer_lbfgs.zero_grad()
    loss = loss_of(variables["points"])
    loss.backward()
    return loss


variables = Variables()
training = Training(state={"net": net, "points": variables, "optimizers": [optimizer_adam, optimizer_lbfgs]})
for step in training.steps(adam_steps + lbfgs_steps):
    if step >= adam_steps:
        loss = optimizer_lbfgs.step(closure)
    else:
        if step % 10 == 0:
            variables["points"] = sample()
        optimizer_adam.zero_grad()
        loss = loss_of(variables["points"])
        loss.backward()
        optimizer_adam.step()
    training.log(loss=loss.item())
    if step % 20 == 0 or step >= adam_steps:
        print(f"{step}: {loss.item():.5f}")
training.finish({"pinn.pt": net.state_dict()})
