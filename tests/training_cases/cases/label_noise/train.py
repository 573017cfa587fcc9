import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from unbroken.training.torch import Training

n_epoch, batch_size, noise_rate, num_gradual = 4, 50, 0.2, 2
torch.manual_seed(12)
digits = load_digits()


class NoisyDigits(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(12)

    def __len__(self):
        return 1300

    def __getitem__(self, index):
        label = digits.target[index]
        if self.rng.random() < noise_rate:
            label = self.rng.integers(10)
        image = digits.data[index] / 16 + self.rng.normal(0, 0.05, 64)
        return torch.from_numpy(image).float(), int(label)


def network():
    return nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.LeakyReLU(0.01), nn.Dropout(0.25), nn.Linear(32, 10))


def adjust_learning_rate(optimizer, epoch):
    for group in optimizer.param_groups:
        group["lr"] = 0.003 * (n_epoch - epoch) / n_epoch
        group["betas"] = (0.9 if epoch < 2 else 0.1, 0.999)


model1, model2 = network(), network()
optimizer1 = torch.optim.Adam(model1.parameters(), lr=0.003)
optimizer2 = torch.optim.Adam(model2.parameters(), lr=0.003)
parts = {"model1": model1, "model2": model2, "optimizer1": optimizer1, "optimizer2": optimizer2}
training = Training(state=parts, seed=12)
train_loader = training.loader(NoisyDigits(), batch_size, drop_last=True, num_workers=2)
for epoch in training.epochs(n_epoch):
    model1.train(), model2.train()
    adjust_learning_rate(optimizer1, epoch)
    adjust_learning_rate(optimizer2, epoch)
    kept = int(batch_size * (1 - noise_rate * min(1.0, (epoch + 1) / num_gradual)))
    for images, labels in training.batches(train_loader):
        logits1, logits2 = model1(images), model2(images)
        with torch.no_grad():
            small1 = cross_entropy(logits1, labels, reduction="none").argsort()[:kept]
            small2 = cross_entropy(logits2, labels, reduction="none").argsort()[:kept]
        loss1 = cross_entropy(logits1[small2], labels[small2])
        loss2 = cross_entropy(logits2[small1], labels[small1])
        optimizer1.zero_grad()
        loss1.backward()
        optimizer1.step()
        optimizer2.zero_grad()
        loss2.backward()
        optimizer2.step()
        training.log(loss1=loss1.item(), loss2=loss2.item())
    print(f"Epoch [{epoch}/{n_epoch}] loss1 {training.mean('loss1'):.4f}")
training.finish({"model1.pt": model1.state_dict(), "model2.pt": model2.state_dict()})
