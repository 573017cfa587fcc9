"""What the trainings of killed_saves.py share: a small model, its data, five batches an epoch."""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

EPOCHS, BATCHES, SIZE = 6, 5, 16


def folder() -> Path:
    """`--out`: where the checkpoints and final.pt go."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    return out


def data() -> TensorDataset:
    inputs = torch.randn(BATCHES * SIZE, 8, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def tell_start(step: int) -> None:
    print(f"resumed from step {step}", flush=True)
