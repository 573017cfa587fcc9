"""A training of several ranks that adds up gradients over four batches: run as a program."""

import argparse
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from unbroken.training.torch import Training, seed_everything

# 12 batches for each of two ranks in three epochs of 4.
BATCH, STEPS, EPOCHS = 2, 4, 3


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 2 * BATCH * STEPS

    def __getitem__(self, index):
        return torch.randn(6) + index / 10


def built(kind, size):
    model = nn.Sequential(nn.Linear(6, 33), nn.ReLU(), nn.Dropout(0.5), nn.Linear(33, 1))
    if kind.startswith("ddp"):
        return DistributedDataParallel(model, gradient_as_bucket_view=kind == "ddp-views")
    if kind == "fsdp1":
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    if kind.startswith("fsdp"):
        mesh = init_device_mesh("cpu", (size,))
        fully_shard(model[0], mesh=mesh)
        return fully_shard(model, mesh=mesh)
    return model


def note(name, model, rank):
    """Writes all gradients, whole, beside the program."""
    grads = {key.removeprefix("module."): parameter.grad for key, parameter in model.named_parameters()}
    whole = {key: grad.full_tensor() if hasattr(grad, "full_tensor") else grad for key, grad in grads.items()}
    torch.save(whole, Path(__file__).with_name(f"{name}-{rank}.pt"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["ddp", "ddp-views", "fsdp", "fsdp-unshared", "fsdp1", "plain"])
    parser.add_argument("--signals", type=int, nargs="*", default=[])
    given = parser.parse_args()
    torch.set_num_threads(1)
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if size > 1:
        dist.init_process_group("gloo")
    seed_everything(3)
    model = built(given.kind, size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    training = Training(state={"model": model, "optimizer": optimizer}, seed=3)
    loader = training.loader(Numbers(), BATCH)
    has_begun = False
    for _ in training.epochs(EPOCHS):
        for inputs in training.batches(loader):
            if not has_begun:
                note("begun", model, rank)
            has_begun = True
            is_step = (training.step + 1) % 6 == 0  # over the borders of epochs
            if given.kind == "fsdp-unshared":
                model.set_requires_gradient_sync(is_step)
            if given.kind.startswith("ddp"):
                model.require_backward_grad_sync = is_step  # as no_sync() does
            (model(inputs).square().mean() / 6).backward()
            note("ended", model, rank)
            if is_step:
                optimizer.step()
                optimizer.zero_grad()
            if rank == size - 1 and training.step + 1 in given.signals:
                os.kill(os.getpid(), signal.SIGUSR1)
    training.finish({"model.pt": model.state_dict()})
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
