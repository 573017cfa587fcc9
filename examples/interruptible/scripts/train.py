"""Trains a small network.  It saves after each epoch, and goes on from there when it is started again."""

import argparse
import csv
import os
import time

import numpy as np
import torch
from torch import nn

CHECKPOINT = "ckpt/last.pt"

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("model")
parser.add_argument("losses")
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--pace", type=float, default=0)
options = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
data = np.load(options.data)
images, labels = torch.tensor(data["images"]), torch.tensor(data["labels"])
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
losses = []

if os.path.exists(CHECKPOINT):
    saved = torch.load(CHECKPOINT)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"])
    losses = saved["losses"]
    print(f"going on after epoch {len(losses)}", flush=True)

while len(losses) < options.epochs:
    total = 0.0
    for batch in torch.randperm(len(labels)).split(64):
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    losses.append(total / len(labels))
    os.makedirs("ckpt", exist_ok=True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
    torch.save({**state, "losses": losses}, CHECKPOINT)
    print(f"epoch {len(losses)}: loss {losses[-1]:.4f}", flush=True)
    if len(losses) < options.epochs:
        time.sleep(options.pace)

torch.save(model.state_dict(), options.model)
with open(options.losses, "w", newline="") as file:
    csv.writer(file).writerows([["epoch", "loss"], *enumerate(losses, start=1)])
