"""Trains a small network to read handwritten digits (8 x 8 pixels, they come with scikit-learn).

Plain PyTorch but for the lines with `training`: through them the training can be stopped after any batch and goes on
in the next segment as if nothing had happened.  `python train.py` trains without unbroken.
"""

import argparse
import os
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from unbroken.training.torch import Training, seed_everything

EPOCHS = 12  # the length of the schedule, and the goal where no configuration gives one


class Digits(Dataset):
    """Pixels and labels; a training sample is shifted and blurred by chance each time it is read."""

    def __init__(self, pixels, labels, is_training):
        self.pixels, self.labels, self.is_training = pixels, labels, is_training

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.pixels[index]
        if self.is_training:
            shifts = torch.randint(-1, 2, (2,)).tolist()
            image = image.roll(shifts, dims=(1, 2)) + 0.1 * torch.randn(image.shape)
        return image, self.labels[index]


def read_digits():
    """Images and labels from scikit-learn's own file: to load all of scikit-learn takes longer than an epoch."""
    folder = Path(find_spec("sklearn").submodule_search_locations[0], "datasets", "data")
    rows = np.loadtxt(folder / "digits.csv.gz", delimiter=",")
    return rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(int)


def make_datasets():
    images, digits = read_digits()
    pixels = torch.tensor(images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits)
    return Digits(pixels[:1437], labels[:1437], True), Digits(pixels[1437:], labels[1437:], False)


def make_model():
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)),
    )


@torch.no_grad()
def accuracy_of(model, loader):
    model.eval()
    hits = [(model(images).argmax(1) == labels).float() for images, labels in loader]
    return torch.cat(hits).mean().item()


def main(options):
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    seed_everything(options.seed)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)
    training = Training(
        state={"model": model, "optimizer": optimizer, "scheduler": scheduler},
        seed=options.seed,
        best=("accuracy", "max"),
    )
    train_set, test_set = make_datasets()
    train_loader = training.loader(train_set, options.batch_size, num_workers=options.workers)
    test_loader = training.loader(test_set, 360, shuffle=False)

    for epoch in training.epochs(goal=EPOCHS):
        model.train()
        for images, labels in training.batches(train_loader):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            training.log(loss=loss.item())
            time.sleep(options.pause_seconds)
        scheduler.step()
        accuracy = accuracy_of(model, test_loader)
        training.log(accuracy=accuracy)
        print(f"epoch {epoch}: loss {training.mean('loss'):.3f}, accuracy {accuracy:.3f}", flush=True)

    training.finish({"model.pt": model.state_dict()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare batches")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.004)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--pause-seconds", type=float, default=0.0, help="after each batch, to have time to watch")
    main(parser.parse_args())
