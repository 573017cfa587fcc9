"""Train in a loop of the user's own: own_loop.py FOLDER [at STEP NUMBER] [broken]."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

from unbroken.training.torch import Checkpoints, Loaders, Saves, Stop, Variables, seed_everything


class Noisy(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 44

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return index / 44 + torch.rand(6), index


def main(folder: str, *options: str) -> None:
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
    at, number = (int(options[1]), int(options[2])) if options[:1] == ("at",) else (-1, 0)
    seed_everything(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    variables, loaders = Variables(seen=[]), Loaders(seed=1)
    loader, others = loaders.loader(Noisy(), 8, num_workers=1), loaders.loader(Noisy(), 5)
    others = loaders.endless(others)
    state = {"model": model, "optimizer": optimizer, "variables": variables, "loaders": loaders}
    if "broken" in options:
        state["optimizer"] = Broken(optimizer)
    checkpoints = Checkpoints(state, folder=folder or None, saves=Saves(steps=5))
    stop = Stop(checkpoints)
    step, goal = checkpoints.load(), checkpoints.goal or 30
    while step < goal:
        for inputs, numbers in loader:
            more, _ = next(others)
            loss = model(inputs).square().mean() + model(more).mean() ** 2
            (loss / 2).backward()
            if step % 2:  # gradients of two steps are added up
                optimizer.step()
                optimizer.zero_grad()
            variables["seen"].append(numbers.tolist())
            step += 1
            if step == at:
                os.kill(os.getpid(), number)
            if stop.requested:
                checkpoints.save(step, force=True)
                stop.leave()
            checkpoints.save(step)
            if step == goal:
                break
    assert not dist.is_initialized() or dist.get_world_size() == 2
    checkpoints.finish({"model.pt": {"model": model.state_dict(), "seen": variables["seen"]}})


class Broken:
    """Restore an optimizer without what it has learned of the gradients."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def state_dict(self) -> dict:
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict) -> None:
        self.optimizer.load_state_dict({**state, "state": {}})


if __name__ == "__main__":
    main(*sys.argv[1:])
