import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.amp import GradScaler, autocast
from torch.utils.data import TensorDataset

from unbroken.training.torch import Training

torch.manual_seed(21)
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)

model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.004)
scaler = GradScaler("cpu", init_scale=2.0**13, growth_interval=2)
iters_to_accumulate = 3
training = Training(state={"model": model, "optimizer": optimizer, "scaler": scaler}, seed=21)
loader = training.loader(TensorDataset(images[:1500], labels[:1500]), 40)

for epoch in training.epochs(4):
    for inputs, targets in training.batches(loader):
        with autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(inputs), targets) / iters_to_accumulate
        scaler.scale(loss).backward()
        training.log(loss=loss.item() * iters_to_accumulate, scale=scaler.get_scale())
        if (training.batch + 1) % iters_to_accumulate == 0 or training.is_last_batch:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    print(f"epoch {epoch}: loss {training.mean('loss'):.4f}, scale {scaler.get_scale()}")
training.finish({"model.pt": model.state_dict()})
