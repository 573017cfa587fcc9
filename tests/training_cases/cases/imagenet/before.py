import argparse
import os
import random
import shutil

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("-j", "--workers", default=2, type=int)
parser.add_argument("--epochs", default=3, type=int)
parser.add_argument("-b", "--batch-size", default=64, type=int)
parser.add_argument("--lr", default=0.1, type=float)
parser.add_argument("--resume", default="", type=str)
parser.add_argument("--seed", default=4, type=int)


class Images(Dataset):
    def __init__(self, first, last, transform):
        digits = load_digits()
        self.samples, self.targets = digits.images[first:last].astype("float32") / 16, digits.target[first:last]
        self.transform = transform

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        image = self.samples[index]
        if self.transform:  # flip, crop, jitter
            image = image[:, ::-1] if random.random() < 0.2 else image
            image = np.roll(image, np.random.randint(-1, 2, 2), (0, 1)).copy()
        image = torch.from_numpy(np.ascontiguousarray(image))
        return (image * (0.8 + 0.4 * torch.rand(()))) if self.transform else image, int(self.targets[index])


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0, 0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / self.count


def train(train_loader, model, criterion, optimizer, epoch):
    losses = AverageMeter()
    model.train()
    for images, target in train_loader:
        loss = criterion(model(images), target)
        losses.update(loss.item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"Epoch: [{epoch}] Loss {losses.avg:.4f}")


def validate(val_loader, model):
    model.eval()
    top1 = AverageMeter()
    with torch.no_grad():
        for images, target in val_loader:
            top1.update((model(images).argmax(1) == target).float().mean().item() * 100, images.size(0))
    print(f" * Acc@1 {top1.avg:.3f}")
    return top1.avg


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


def main():
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 10))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
    best_acc1, start_epoch = 0, 0
    if args.resume and os.path.isfile(args.resume):
        checkpoint = torch.load(args.resume)
        start_epoch = checkpoint["epoch"]
        best_acc1 = checkpoint["best_acc1"]
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
    train_loader = DataLoader(Images(0, 1400, True), args.batch_size, shuffle=True, num_workers=args.workers)
    val_loader = DataLoader(Images(1400, 1797, False), args.batch_size, num_workers=args.workers)
    for epoch in range(start_epoch, args.epochs):
        train(train_loader, model, criterion, optimizer, epoch)
        acc1 = validate(val_loader, model)
        scheduler.step()
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        save_checkpoint(
            {
                "epoch": epoch + 1,
                "state_dict": model.state_dict(),
                "best_acc1": best_acc1,
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
            },
            is_best,
        )


if __name__ == "__main__":
    main()
