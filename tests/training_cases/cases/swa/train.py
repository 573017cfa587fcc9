import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import TensorDataset

from unbroken.training.torch import Training

torch.manual_seed(0)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)

model = nn.Sequential(nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 10))
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
swa_model = AveragedModel(model)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
swa_start = 2
swa_scheduler = SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)

parts = {"model": model, "optimizer": optimizer, "swa_model": swa_model}
training = Training(state={**parts, "scheduler": scheduler, "swa_scheduler": swa_scheduler}, seed=0)
loader = training.loader(TensorDataset(images[:1500], labels[:1500]), 64)

for epoch in training.epochs(5):
    for inputs, target in training.batches(loader):
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), target)
        loss.backward()
        optimizer.step()
        training.log(loss=loss.item())
    if epoch > swa_start:
        swa_model.update_parameters(model)
        swa_scheduler.step()
    else:
        scheduler.step()
    print(f"epoch {epoch}: loss {training.mean('loss'):.4f}, lr {optimizer.param_groups[0]['lr']:.4f}")

update_bn(loader, swa_model)
swa_model.eval()
accuracy = (swa_model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
print(f"accuracy of the average: {accuracy:.3f}")
training.log(swa_accuracy=accuracy)
training.finish({"swa.pt": swa_model.module.state_dict()})
