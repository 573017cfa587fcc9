"""A training of several ranks with Accelerate, small enough for a test: run as a program."""

import os
import signal
import sys

import accelerate.accelerator as library
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils import set_seed
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from unbroken.training.accelerate import UnbrokenLoop

DEEDS = {"signal": signal.SIGUSR1, "kill": signal.SIGKILL}
# 7 steps of each of two ranks, the last with 2 samples of each.
DATA = TensorDataset(torch.arange(3.0 * 52).reshape(52, 3) / 52)

torch.set_num_threads(1)
plugin = None
if "FSDP2" in os.environ:
    import forced_fsdp  # noqa: F401

    if "WITHOUT_OPTIMIZER" in os.environ:  # a restore that is broken on purpose
        library.load_fsdp_optimizer = lambda *_, **__: None
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap")
on_cpu = os.environ.get("UNBROKEN_GPU_DEVICE") != "cuda"
accelerator = Accelerator(cpu=on_cpu, gradient_accumulation_steps=2, fsdp_plugin=plugin)
set_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=24)
unbroken = UnbrokenLoop(accelerator, seed=3)
loader = unbroken.loader(DATA, batch_size=4)
model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
assert isinstance(model, FSDPModule if plugin else DistributedDataParallel)
torch.manual_seed(accelerator.process_index)  # the ranks draw different masks
steps = 0
for _ in unbroken.epochs():
    for (inputs,) in unbroken.batches(loader):
        steps += 1
        for deed, step in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
            if steps == int(step) and accelerator.process_index == accelerator.num_processes - 1:
                os.kill(os.getpid(), DEEDS[deed])
        with accelerator.accumulate(model):
            loss = model(inputs).pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        unbroken.log(loss=loss.item())
unbroken.finish({"model.pt": accelerator.get_state_dict(model)})
