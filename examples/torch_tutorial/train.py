"""The training loop of PyTorch's tutorial "Training with PyTorch", with digits from scikit-learn as its data."""

import copy
import os
import sys
import time

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from unbroken.training.torch import Training

PAUSE_SECONDS = float(sys.argv[1]) if sys.argv[1:] else 0.0  # after each batch, to have time to watch
EPOCHS = 8

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
torch.manual_seed(0)

digits = load_digits()
pixels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
training_set = TensorDataset(pixels[:1437], labels[:1437])
validation_set = TensorDataset(pixels[1437:], labels[1437:])


class DigitClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 16, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Linear(64, 60), nn.ReLU(), nn.Dropout(0.2), nn.Linear(60, 10))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


model = DigitClassifier()
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
best_model = copy.deepcopy(model)
training = Training(state={"model": model, "optimizer": optimizer, "best_model": best_model}, best=("vloss", "min"))
training_loader = training.loader(training_set, batch_size=32)
validation_loader = DataLoader(validation_set, batch_size=32)


def train_one_epoch():
    for inputs, wanted in training.batches(training_loader):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = loss_fn(outputs, wanted)
        loss.backward()
        optimizer.step()
        training.log(loss=loss.item())
        time.sleep(PAUSE_SECONDS)
    return training.mean("loss")


for epoch in training.epochs(EPOCHS):
    model.train(True)
    avg_loss = train_one_epoch()

    running_vloss = 0.0
    model.eval()
    with torch.no_grad():
        for vinputs, vwanted in validation_loader:
            running_vloss += loss_fn(model(vinputs), vwanted).item()
    avg_vloss = running_vloss / len(validation_loader)
    print(f"EPOCH {epoch + 1}: LOSS train {avg_loss} valid {avg_vloss}", flush=True)

    training.log(vloss=avg_vloss)
    if training.is_best:
        best_model.load_state_dict(model.state_dict())

training.finish({"model.pt": best_model.state_dict()})
