"""A small network learns to read digits, in a loop with Accelerate.

Plain Accelerate but for the lines with `unbroken`.  `python train.py` trains without it.
"""

import os
import sys
import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

from unbroken.training.accelerate import UnbrokenLoop

PAUSE_SECONDS = float(sys.argv[1]) if sys.argv[1:] else 0.0  # after each step, to have time to watch

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
unbroken = UnbrokenLoop(accelerator, seed=0)
set_seed(0)
images, digits = (torch.as_tensor(values) for values in load_digits(return_X_y=True))
train = TensorDataset(images[:1500].float() / 16, digits[:1500])
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=48)

loader = unbroken.loader(train, batch_size=100, shuffle=True)  # 15 batches an epoch
model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
for _ in unbroken.epochs(4):  # the goal of the config comes first
    model.train()
    for inputs, targets in unbroken.batches(loader):  # saves and leaves between two batches
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        unbroken.log(loss=loss.item())
        time.sleep(PAUSE_SECONDS)
unbroken.finish({"model.pt": accelerator.unwrap_model(model).state_dict()})
