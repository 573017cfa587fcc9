"""Train with FSDP2 and note the state after each step: fsdp2_program.py FOLDER [at STEP SIGNAL | broken]."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from unbroken.training.torch import Saves, Training, seed_everything


class Numbered(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return index / 40 + torch.rand(5), index


def digest_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """All bytes of the weights and of the optimizer's state, whatever ranks hold them."""
    found = hashlib.sha256()
    tensors = dict(model.named_parameters())
    for number, parameter in enumerate(model.parameters()):
        tensors |= {f"{number}.{key}": value for key, value in optimizer.state.get(parameter, {}).items()}
    for name, value in sorted(tensors.items()):
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        found.update(name.encode() + whole.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def main(folder: str, *options: str) -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    at, number = (int(options[1]), int(options[2])) if options[:1] == ("at",) else (-1, 0)
    seed_everything(0)
    model = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 1))
    mesh = init_device_mesh("cpu", (size,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    assert isinstance(model, FSDPModule) and all(isinstance(each, DTensor) for each in model.parameters())
    training = Training({"model": model, "optimizer": optimizer}, folder=folder, saves=Saves(steps=4))
    if "broken" in options:
        optimizer.state.clear()
    log = Path(folder, f"states-{rank}")
    log.open("a").write(f"loaded {training.step} {digest_of(model, optimizer)}\n")
    loader = training.loader(Numbered(), 4)
    for _ in training.epochs(3):
        for inputs, indices in training.batches(loader):
            loss = model(inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step = training.step + 1
            said = f"{training.epoch} {step} {digest_of(model, optimizer)} {indices.tolist()}"
            log.open("a").write(f"trained {said}\n")
            if step == at:
                os.kill(os.getpid(), number)
    training.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
