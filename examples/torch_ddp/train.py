"""Trains a small network on several ranks to read handwritten digits (8 x 8 pixels, they come with scikit-learn).

Plain PyTorch but for the lines with `training`.  By hand:
python -m unbroken.training.launch.ranks --ranks 2 python train.py
"""

import argparse
import os
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from unbroken.training.torch import Training, seed_everything

EPOCHS = 10  # the length of the schedule, and the goal where no configuration gives one


def read_digits():
    """Images and labels from scikit-learn's own file: to load all of scikit-learn takes longer than an epoch."""
    folder = Path(find_spec("sklearn").submodule_search_locations[0], "datasets", "data")
    rows = np.loadtxt(folder / "digits.csv.gz", delimiter=",")
    return rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(int)


def make_datasets():
    images, digits = read_digits()
    pixels = torch.tensor(images, dtype=torch.float32).flatten(1) / 16
    labels = torch.tensor(digits)
    return TensorDataset(pixels[:1437], labels[:1437]), TensorDataset(pixels[1437:], labels[1437:])


def make_model(is_sharded):
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
    if not dist.is_initialized():
        return model
    if is_sharded:
        return fully_shard(model, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
    return DistributedDataParallel(model)


@torch.no_grad()
def accuracy_of(model, loader):
    """Of all ranks: each counts in its share of the test samples."""
    model.eval()
    counts = torch.zeros(2)
    for images, labels in loader:
        counts += torch.tensor([(model(images).argmax(1) == labels).sum(), len(labels)])
    if dist.is_initialized():
        dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main(options):
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if "RANK" in os.environ:
        dist.init_process_group("gloo")  # with GPUs: nccl, and torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    seed_everything(options.seed)
    model = make_model(options.sharded)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.004)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)
    training = Training(
        state={"model": model, "optimizer": optimizer, "scheduler": scheduler},
        seed=options.seed,
        best=("accuracy", "max"),
    )
    train_set, test_set = make_datasets()
    train_loader = training.loader(train_set, options.batch_size)
    test_loader = training.loader(test_set, 60, shuffle=False)

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
        if os.environ.get("RANK", "0") == "0":
            print(f"epoch {epoch}: loss {training.mean('loss'):.3f}, accuracy {accuracy:.3f}", flush=True)

    training.finish({"model.pt": model.state_dict()})
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sharded", action="store_true", help="FSDP instead of DDP")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    parser.add_argument("--pause-seconds", type=float, default=0.0, help="after each batch, to have time to watch")
    main(parser.parse_args())
