import copy

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from unbroken.training.torch import Training

torch.manual_seed(5)
digits = load_digits()
images, labels = torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target)


class Unlabeled(Dataset):
    """Each image weakly (shifted) and strongly (shifted, noise, erased) augmented."""

    def __len__(self):
        return 900

    def __getitem__(self, index):
        shifts = torch.randint(-1, 2, (4,)).tolist()
        weak = images[index].roll(shifts[:2], dims=(0, 1))
        strong = images[index].roll(shifts[2:], dims=(0, 1)) + 0.2 * torch.randn(8, 8)
        row = int(torch.randint(0, 6, ()))
        strong[row : row + 2] = 0
        return weak.flatten(), strong.flatten()


class ModelEMA:
    def __init__(self, model, decay):
        self.ema, self.decay = copy.deepcopy(model), decay

    @torch.no_grad()
    def update(self, model):
        for average, value in zip(self.ema.state_dict().values(), model.state_dict().values(), strict=True):
            average.copy_(average * self.decay + (1 - self.decay) * value)

    def state_dict(self):
        return self.ema.state_dict()

    def load_state_dict(self, state):
        self.ema.load_state_dict(state)


model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.05, 1 - step / 80))
ema_model = ModelEMA(model, 0.95)
labeled = TensorDataset(images[900:1200].flatten(1), labels[900:1200])
parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "ema": ema_model}
training = Training(state=parts, seed=5)
labeled_trainloader = training.loader(labeled, 30, drop_last=True)
unlabeled_trainloader = training.loader(Unlabeled(), 70, drop_last=True, num_workers=1)

unlabeled_iter = training.endless(unlabeled_trainloader)
for epoch in training.epochs(5):
    for inputs_x, targets_x in training.batches(labeled_trainloader):
        inputs_u_w, inputs_u_s = next(unlabeled_iter)
        logits_x, logits_u_w, logits_u_s = model(torch.cat([inputs_x, inputs_u_w, inputs_u_s])).split((30, 70, 70))
        max_probs, targets_u = logits_u_w.detach().softmax(-1).max(-1)
        losses_u = nn.functional.cross_entropy(logits_u_s, targets_u, reduction="none")
        loss = nn.functional.cross_entropy(logits_x, targets_x) + (losses_u * max_probs.ge(0.7)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        ema_model.update(model)
        training.log(loss=loss.item())
    with torch.no_grad():
        accuracy = (ema_model.ema(images[1200:].flatten(1)).argmax(1) == labels[1200:]).float().mean().item()
    training.log(accuracy=accuracy)
    print(f"epoch {epoch}: loss {training.mean('loss'):.4f}, accuracy of EMA {accuracy:.3f}")
training.finish({"ema.pt": ema_model.ema.state_dict()})
