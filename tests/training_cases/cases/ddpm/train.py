import copy

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from unbroken.training.torch import Training

train_num_steps, gradient_accumulate_every, sample_every, timesteps = 40, 2, 20, 20
torch.manual_seed(17)
noise = torch.Generator().manual_seed(17)
images = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
alphas = torch.cumprod(1 - torch.linspace(1e-3, 0.2, timesteps), 0)


class EMA:
    def __init__(self, model, beta=0.9, after=10):
        self.model, self.average, self.beta, self.after, self.step = model, copy.deepcopy(model), beta, after, 0

    @torch.no_grad()
    def update(self):
        self.step += 1
        beta = 0.0 if self.step <= self.after else self.beta
        for average, value in zip(self.average.parameters(), self.model.parameters(), strict=True):
            average.lerp_(value, 1 - beta)

    def state_dict(self):
        return {"average": self.average.state_dict(), "step": self.step}

    def load_state_dict(self, state):
        self.average.load_state_dict(state["average"])
        self.step = state["step"]


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(timesteps, 32)
        self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 64)

    def forward(self, x, t):
        return self.last(torch.nn.functional.silu(self.first(x) + self.time(t)))


@torch.no_grad()
def sample(model, count):
    x = torch.randn(count, 64, generator=noise)
    for t in reversed(range(timesteps)):
        eps = model(x, torch.full((count,), t))
        x = (x - (1 - alphas[t]).sqrt() * eps) / alphas[t].sqrt()
        if t:
            x, z = x.clamp(-1, 1), torch.randn(x.shape, generator=noise)
            x = alphas[t - 1].sqrt() * x + (1 - alphas[t - 1]).sqrt() * z
    return x


model = Denoiser()
opt = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.99))
ema = EMA(model)
training = Training(state={"model": model, "opt": opt, "ema": ema, "noise": noise}, seed=17)
dl = training.endless(training.loader(TensorDataset(images), 64))

for step in training.steps(train_num_steps):
    total_loss = 0.0
    for _ in range(gradient_accumulate_every):
        (x,) = next(dl)
        t = torch.randint(0, timesteps, (len(x),), generator=noise)
        eps = torch.randn(x.shape, generator=noise)
        a = alphas[t].unsqueeze(1)
        loss = nn.functional.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * eps, t), eps) / gradient_accumulate_every
        total_loss += loss.item()
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    ema.update()
    training.log(loss=total_loss)
    if step % sample_every == 0:
        print(f"step {step}: loss {total_loss:.4f}, samples {sample(ema.average, 8).std().item():.4f}")
training.finish({"model.pt": ema.average.state_dict()})
