import argparse
import copy

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from unbroken.training.torch import Training, seed_everything


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = sum((model(inputs).argmax(1) == targets).sum().item() for inputs, targets in loader)
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    seed_everything(args.seed)
    digits = load_digits()
    data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
    train_set, valid_set = random_split(data, [0.9, 0.1], torch.Generator().manual_seed(42))
    valid_loader = DataLoader(valid_set, args.batch_size)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-4)
    best = copy.deepcopy(model)
    parts = {"model": model, "optimizer": optimizer, "best": best}
    training = Training(state=parts, seed=args.seed, best=("accuracy", "max"))
    train_loader = training.loader(train_set, args.batch_size)
    for epoch in training.epochs(args.epochs):
        model.train()
        for inputs, targets in training.batches(train_loader):
            loss = F.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            training.log(loss=loss.item())
        accuracy = validate(model, valid_loader)
        print(f"epoch {epoch}: accuracy {accuracy:.2%}")
        training.log(accuracy=accuracy)
        if training.is_best:
            best.load_state_dict(model.state_dict())
    training.finish({"model.pt": model.state_dict(), "model_best.pt": best.state_dict()})


if __name__ == "__main__":
    main()
