import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
dataloaders = {
    "train": DataLoader(TensorDataset(images[:1400], labels[:1400]), 64, shuffle=True),
    "val": DataLoader(TensorDataset(images[1400:], labels[1400:]), 397),
}
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


best_acc = 0.0
for epoch in range(5):
    if epoch == 2:
        unfreeze()
    model.train()
    for inputs, targets in dataloaders["train"]:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
    val_loss, val_acc = evaluate()
    scheduler.step(val_loss)
    print(f"epoch {epoch}: val loss {val_loss:.4f} Acc: {val_acc:.4f}")
    if val_acc > best_acc:
        best_acc = val_acc
        torch.save(model.state_dict(), "best_model_params.pt")
print(f"Best val Acc: {best_acc:4f}")
