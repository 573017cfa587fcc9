"""A training of several ranks, small enough for a test and with everything that has a state: run as a program."""

import argparse
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from unbroken.training.torch import Saves, Training, seed_everything

# 53 samples in batches of 5: a row of 11 batches; 6 steps an epoch for two ranks, the last with 2 and 1 samples.
SAMPLES, BATCH, EPOCHS = 53, 5, 3


class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        noise = random.random() + np.random.rand() + torch.randn(6)
        return noise + index, (noise.sum() > 9).float(), index


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["ddp", "fsdp", "plain"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of all ranks")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--signals", type=int, nargs="*", default=[])
    parser.add_argument("--dies-at", type=int, default=-1)
    parser.add_argument("--without-average", action="store_true")
    parser.add_argument("--torchdata", action="store_true")
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--beside", type=int, help="saves beside the training, after so many steps")
    parser.add_argument("--spoils", type=int, nargs=2, default=(-1, -1), help="rank and step")
    parser.add_argument("--loses", type=int, nargs=2, default=(-1, -1), help="rank and step: the loss is no number")
    parser.add_argument("--raises", type=int, nargs=2, default=(-1, -1), help="rank and step")
    return parser.parse_args()


def built(kind, size, device):
    model = nn.Sequential(nn.Linear(6, 33), nn.ReLU(), nn.Dropout(0.5), nn.Linear(33, 1)).to(device)
    if kind == "ddp":
        return DistributedDataParallel(model)
    if kind == "fsdp":
        mesh = init_device_mesh(device, (size,))
        for layer in (model[0], model[3]):
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    return model


def stateful_loader(workers, size, rank):
    from torchdata.stateful_dataloader import StatefulDataLoader
    from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

    sampler = StatefulDistributedSampler(Noisy(), size, rank, seed=3)
    return StatefulDataLoader(Noisy(), BATCH, sampler=sampler, num_workers=workers)


def parts_of(given, model, optimizer, size, rank):
    parts = {"model": model, "optimizer": optimizer}
    parts["scheduler"] = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    if given.kind == "ddp" and not given.without_average:
        parts["average"] = torch.optim.swa_utils.AveragedModel(model.module)
    if given.torchdata:
        parts["loader"] = stateful_loader(given.workers, size, rank)
    return parts


def spoil(model):
    with torch.no_grad():
        next(model.parameters()).mul_(torch.nan)


def meet_fate(given, rank, step, is_last):
    if [rank, step] == given.raises:
        raise ValueError("a mistake of the user's")
    if is_last and step in given.signals:
        os.kill(os.getpid(), signal.SIGUSR1)
    if is_last and step == given.dies_at:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(given.pause)


def main():
    given = options()
    torch.set_num_threads(1)
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if size > 1 or given.kind == "fsdp":
        # NCCL refuses two ranks on one GPU; with gloo in its place, tensors of the CPU have no backend either.
        on_gpu = "cuda:gloo" if size > 1 else "cuda:nccl"
        dist.init_process_group("gloo" if given.device == "cpu" else on_gpu)
    seed_everything(3)
    model = built(given.kind, size, given.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    parts = parts_of(given, model, optimizer, size, rank)
    generator = torch.Generator().manual_seed(rank)
    saves = Saves(steps=given.beside, in_background=given.beside is not None)
    training = Training(
        state={"generator": generator, **parts},
        seed=3,
        best=("score", "max"),
        saves=saves,
    )
    loader = parts.get("loader") or training.loader(Noisy(), BATCH, num_workers=given.workers)
    average, seen = parts.get("average"), Path(__file__).with_name(f"seen-{size}-{rank}")
    for epoch in training.epochs(EPOCHS):
        if given.torchdata:
            loader.sampler.set_epoch(epoch)
        for inputs, targets, indices in training.batches(loader):
            inputs, targets = inputs.to(given.device), targets.to(given.device)
            with torch.autocast(given.device, torch.bfloat16):
                noise = torch.randn(1) + random.gauss(0, 1) + np.random.randn()
                noise = noise + torch.rand(1, generator=generator)
                loss = nn.functional.mse_loss(model(inputs).squeeze(1) + 0.1 * noise.float().to(given.device), targets)
            optimizer.zero_grad()
            loss.backward()
            step = training._course.position.step + 1
            optimizer.step()
            if [rank, step] == given.spoils:
                spoil(model)
            if average:
                average.update_parameters(model.module)
            training.log(loss=torch.nan if [rank, step] == given.loses else loss.nan_to_num().item())
            with seen.open("a") as file:
                file.write(f"{epoch} {' '.join(map(str, indices.tolist()))}\n")
            meet_fate(given, rank, step, is_last=rank == size - 1)
        parts["scheduler"].step()
        training.log(score=epoch)
    training.finish({"model.pt": model.state_dict()})
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
