"""DeepSpeed's ZeRO-2 under Accelerate on two ranks, with unbroken's `UnbrokenLoop`, by hand in a folder."""

import os

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import small
import torch
from accelerate import Accelerator, DeepSpeedPlugin
from accelerate.utils import InitProcessGroupKwargs

from unbroken.training.accelerate import UnbrokenLoop
from unbroken.training.core.save_policy import Saves

EPOCHS = 2  # of the others six: each start takes two ranks of DeepSpeed ten seconds
CONFIG = {
    "zero_optimization": {"stage": 2},
    "train_micro_batch_size_per_gpu": small.SIZE // 2,
    "zero_allow_untested_optimizer": True,
}

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # which would be compiled
out = small.folder()
torch.set_num_threads(1)
handlers = [InitProcessGroupKwargs(backend="gloo")]
accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=CONFIG), kwargs_handlers=handlers)
unbroken = UnbrokenLoop(accelerator, folder=out / "run", saves=Saves(steps=small.BATCHES, keep=EPOCHS + 1))
loader = unbroken.loader(small.data(), batch_size=small.SIZE // 2, shuffle=False)
model = small.network()
model, optimizer = accelerator.prepare(model, small.optimizer_of(model))
if type(model).__name__ != "DeepSpeedEngine":
    raise SystemExit(f"trained by {type(model)}")
started = False


def link_checkpoints() -> None:
    """By the names that the referee reads the step from; those of the store have a date, which differs each time."""
    for state in (out / "run" / "checkpoints").glob("[0-9]*/pytorch_model"):
        link = out / f"checkpoint-{state.parent.name.split('_')[1]}"
        if accelerator.is_main_process and not link.is_symlink():
            os.symlink(state, link)


for _ in unbroken.epochs(EPOCHS * small.BATCHES, "steps"):
    if accelerator.is_main_process and not started:
        small.tell_start(unbroken.step)
    started = True
    for batch in unbroken.batches(loader):
        link_checkpoints()
        accelerator.backward(small.loss_of(model, batch))
        optimizer.step()
        optimizer.zero_grad()
if accelerator.is_main_process and not started:  # it was finished before
    small.tell_start(unbroken.step)
unbroken.finish({"final.pt": accelerator.get_state_dict(model)})
link_checkpoints()
