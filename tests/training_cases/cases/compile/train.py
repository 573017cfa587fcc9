import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from unbroken.training.torch import Training

torch.manual_seed(13)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)

model = nn.Sequential(nn.Linear(64, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Dropout(0.2), nn.Linear(40, 10))
model = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
training = Training(state={"model": model, "optimizer": optimizer}, seed=13)
loader = training.loader(TensorDataset(images[:1500], labels[:1500]), 50, drop_last=True)
for epoch in training.epochs(3):
    model.train()
    for inputs, targets in training.batches(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        training.log(loss=loss.item())
    model.eval()
    with torch.no_grad():
        accuracy = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    training.log(accuracy=accuracy)
    print(f"epoch {epoch}: accuracy {accuracy:.3f}")
training.finish({"model.pt": model.state_dict()})
