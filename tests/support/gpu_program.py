"""A training on a GPU, or on the CPU, with all that has a state there, small enough for a test: run as a program."""

import argparse
import os
import signal
import threading
import time

import torch
from torch import nn

from unbroken.training.torch import Saves, Training, rank_checkpoint, seed_everything

# 4 batches an epoch, 3 epochs.
SAMPLES, BATCH = 20, 5
DEVICE = torch.device(os.environ.get("UNBROKEN_GPU_DEVICE", "cuda"))
HALF = torch.float16 if DEVICE.type == "cuda" else torch.bfloat16

parser = argparse.ArgumentParser()
parser.add_argument("--signals", type=int, nargs="*", default=[], help="steps after which it is told to stop")
parser.add_argument("--dies-at", type=int, default=0, help="step")
parser.add_argument("--dies-in-save", type=int, default=0, help="its number, from 1")
parser.add_argument("--beside", action="store_true", help="saves each step beside the training")
parser.add_argument("--compiled", action="store_true")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--pause", type=float, default=0, help="seconds after each step")
given = parser.parse_args()

complete, saves_begun = rank_checkpoint.save_verified, 0


def save(state, path, **more):
    """Dies with half of the file written, where it is told to."""
    global saves_begun
    saves_begun += 1
    made = complete(state, path, **more)
    if saves_begun == given.dies_in_save:
        assert threading.current_thread().name == "unbroken-save"
        os.truncate(path, path.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)
    return made


rank_checkpoint.save_verified = save
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
seed_everything(3)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8 * 36, 1)
).to(DEVICE)
used = torch.compile(model) if given.compiled else model
optimizer = torch.optim.AdamW(used.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
average = torch.optim.swa_utils.AveragedModel(used)
# So large that the first steps overflow: what is skipped, and the scale, are a state.
scale = 2.0 ** {torch.float16: 24, torch.bfloat16: 126}[HALF]
scaler = torch.amp.GradScaler(DEVICE.type, init_scale=scale, backoff_factor=2.0**-8, growth_interval=3)
generator = torch.Generator(DEVICE).manual_seed(5)
training = Training(
    state={
        "model": used,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "average": average,
        "scaler": scaler,
        "generator": generator,
    },
    saves=Saves(steps=1, in_background=True) if given.beside else Saves(),
)
images = [torch.arange(36.0).reshape(1, 6, 6) / 36 + number for number in range(SAMPLES)]
loader = training.loader(images, BATCH, num_workers=given.workers, pin_memory=DEVICE.type == "cuda")
for _ in training.epochs():
    for batch in training.batches(loader):
        inputs = batch.to(DEVICE, non_blocking=True)
        inputs = inputs + torch.randn(inputs.shape, device=DEVICE)  # of the device's own generator
        inputs = inputs + torch.rand(inputs.shape, generator=generator, device=DEVICE)
        with torch.autocast(DEVICE.type, HALF):
            loss = used(inputs).float().square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        average.update_parameters(used)
        training.log(loss=loss.item(), scale=scaler.get_scale())
        time.sleep(given.pause)
        step = training._course.position.step + 1
        saving = training._link._async_save
        if saving:  # else most steps would find the save before still on its way
            saving.exception()
        if step in given.signals:
            os.kill(os.getpid(), signal.SIGUSR1)
        if step == given.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
    scheduler.step()
updates = int(next(iter(optimizer.state.values()))["step"])
assert 0 < updates < 3 * SAMPLES // BATCH, updates
training.finish({"model.pt": model.state_dict()})
