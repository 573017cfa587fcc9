import copy
import math
import random

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Dataset

from unbroken.training.torch import Training

random.seed(6)
torch.manual_seed(6)
images = torch.tensor(load_digits().images, dtype=torch.float32) / 16


class TwoViews(Dataset):
    def __len__(self):
        return 1400

    def view(self, image):
        if random.random() < 0.5:
            image = image.flip(1)
        shifts = random.choice([-1, 0, 1]), random.choice([-1, 0, 1])
        return (image.roll(shifts, (0, 1)) + 0.1 * torch.randn(8, 8)).flatten()

    def __getitem__(self, index):
        return self.view(images[index]), self.view(images[index])


online = nn.Sequential(nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 16))
predictor = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
target = copy.deepcopy(online)
for param in target.parameters():
    param.requires_grad = False
optimizer = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=3e-3)
epochs, base_tau = 3, 0.9
training = Training(state={"online": online, "predictor": predictor, "target": target, "optimizer": optimizer}, seed=6)
loader = training.loader(TwoViews(), 70, drop_last=True, num_workers=2)


def loss_fn(x, y):
    return 2 - 2 * nn.functional.cosine_similarity(x, y, dim=-1)


K = epochs * len(loader)
for epoch in training.epochs(epochs):
    for one, two in training.batches(loader):
        online_one, online_two = predictor(online(one)), predictor(online(two))
        with torch.no_grad():
            target_one, target_two = target(one), target(two)
        loss = (loss_fn(online_one, target_two) + loss_fn(online_two, target_one)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tau = 1 - (1 - base_tau) * (math.cos(math.pi * training.step / K) + 1) / 2
        training.log(loss=loss.item(), tau=tau)
        with torch.no_grad():
            for teacher, student in zip(target.parameters(), online.parameters(), strict=True):
                teacher.mul_(tau).add_(student, alpha=1 - tau)
    print(f"epoch {epoch}: loss {training.mean('loss'):.4f}")
training.finish({"encoder.pt": online.state_dict()})
