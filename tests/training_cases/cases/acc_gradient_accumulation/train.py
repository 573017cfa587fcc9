import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from unbroken.training.accelerate import UnbrokenLoop

EPOCHS = 3


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    set_seed(3)
    digits = load_digits()
    data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32)[:700] / 16, torch.tensor(digits.target)[:700])
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    unbroken = UnbrokenLoop(accelerator, seed=3)
    loader = unbroken.loader(data, batch_size=32)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    for _ in unbroken.epochs(EPOCHS):
        for inputs, targets in unbroken.batches(loader):
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            unbroken.log(loss=loss.item())
    unbroken.finish({"model.pt": accelerator.unwrap_model(model).state_dict()})


main()
