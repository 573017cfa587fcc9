import argparse
import os
import random
import shutil
import signal
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def save_checkpoint(folder, state, is_best):
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / "checkpoint.tmp")
    os.replace(folder / "checkpoint.tmp", folder / "checkpoint.pth")
    if is_best:
        shutil.copyfile(folder / "checkpoint.pth", folder / "model_best.tmp")
        os.replace(folder / "model_best.tmp", folder / "model_best.pth")


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = sum((model(inputs).argmax(1) == targets).sum().item() for inputs, targets in loader)
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--run-dir", type=Path, default=Path("run"))
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    digits = load_digits()
    data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
    train_set, valid_set = random_split(data, [0.9, 0.1], torch.Generator().manual_seed(42))
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True)
    valid_loader = DataLoader(valid_set, args.batch_size)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-4)
    start_epoch, best_acc = 0, 0.0
    if (args.run_dir / "checkpoint.pth").exists():
        saved = torch.load(args.run_dir / "checkpoint.pth", weights_only=False)
        start_epoch, best_acc = saved["epoch"] + 1, saved["best_acc"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        random.setstate(saved["random"])
        np.random.set_state(saved["numpy"])
        torch.set_rng_state(saved["torch"])
    signal.signal(signal.SIGTERM, lambda *_: print("the job is about to end"))
    for epoch in range(start_epoch, args.epochs):
        model.train()
        for inputs, targets in train_loader:
            loss = F.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = validate(model, valid_loader)
        print(f"epoch {epoch}: accuracy {accuracy:.2%}")
        is_best, best_acc = accuracy > best_acc, max(accuracy, best_acc)
        state = {"epoch": epoch, "best_acc": best_acc, "model": model.state_dict()}
        state |= {"optimizer": optimizer.state_dict(), "random": random.getstate()}
        state |= {"numpy": np.random.get_state(), "torch": torch.get_rng_state()}
        save_checkpoint(args.run_dir, state, is_best)


if __name__ == "__main__":
    main()
