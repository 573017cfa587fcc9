import copy

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import TensorDataset

from unbroken.training.torch import Training

torch.manual_seed(3)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)

backbone = nn.Sequential(nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.2))
head = nn.Linear(48, 10)
model = nn.Sequential(backbone, head)
for param in backbone.parameters():
    param.requires_grad = False
optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.5)


def unfreeze():
    for param in backbone.parameters():
        param.requires_grad = True
    optimizer.add_param_group({"params": list(backbone.parameters()), "lr": 0.02})


def evaluate():
    model.eval()
    with torch.no_grad():
        for inputs, targets in dataloaders["val"]:
            outputs = model(inputs)
            loss = nn.functional.cross_entropy(outputs, targets).item()
            accuracy = (outputs.argmax(1) == targets).float().mean().item()
    return loss, accuracy


def prepare(training):
    if training.epoch > 2 or (training.epoch == 2 and training.batch):
        unfreeze()


best = copy.deepcopy(model)
parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "best": best}
training = Training(state=parts, seed=3, best=("val_acc", "max"), prepare=prepare)
dataloaders = {
    "train": training.loader(TensorDataset(images[:1400], labels[:1400]), 64),
    "val": training.loader(TensorDataset(images[1400:], labels[1400:]), 397, shuffle=False),
}
for epoch in training.epochs(5):
    if epoch == 2 and training.batch == 0:
        unfreeze()
    model.train()
    for inputs, targets in training.batches(dataloaders["train"]):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        training.log(loss=loss.item())
    val_loss, val_acc = evaluate()
    scheduler.step(val_loss)
    print(f"epoch {epoch}: val loss {val_loss:.4f} Acc: {val_acc:.4f}")
    training.log(val_loss=val_loss, val_acc=val_acc)
    if training.is_best:
        best.load_state_dict(model.state_dict())
training.finish({"best_model_params.pt": best.state_dict()})
