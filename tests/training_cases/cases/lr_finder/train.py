import copy

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

from unbroken.training.torch import Training

torch.manual_seed(14)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
train_set = TensorDataset(images[:1500], labels[:1500])
model = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Dropout(0.1), nn.Linear(40, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def range_test(start_lr=1e-3, end_lr=10.0, num_iter=25):
    """Return the rate at which the loss falls fastest."""
    model_state, optimizer_state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    lrs, losses = [], []
    for number, (inputs, targets) in zip(range(num_iter), DataLoader(train_set, 50, shuffle=True), strict=False):
        lr = start_lr * (end_lr / start_lr) ** (number / (num_iter - 1))
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        lrs.append(lr)
        losses.append(loss.item())
    model.load_state_dict(model_state)
    optimizer.load_state_dict(optimizer_state)
    return lrs[int(torch.gradient(torch.tensor(losses))[0][: num_iter - 5].argmin())]


max_lr = range_test()
print(f"Suggested LR: {max_lr:.2E}")
scheduler = OneCycleLR(optimizer, max_lr=max_lr, epochs=3, steps_per_epoch=30)
training = Training(state={"model": model, "optimizer": optimizer, "scheduler": scheduler}, seed=14)
trainloader = training.loader(train_set, 50)
for epoch in training.epochs(3):
    for inputs, targets in training.batches(trainloader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        scheduler.step()
        training.log(loss=loss.item())
    print(f"epoch {epoch}: loss {training.mean('loss'):.4f}")
training.finish({"model.pt": model.state_dict()})
