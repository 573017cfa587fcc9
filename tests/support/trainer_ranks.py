"""A training of several ranks with the Trainer of Hugging Face, small enough for a test: run as a program."""

import os
import signal
import sys

import torch
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

from unbroken.training.transformers import UnbrokenCallback

DEEDS = {"signal": signal.SIGUSR1, "kill": signal.SIGKILL}


class Rows(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        row = torch.arange(index, index + 6) % 13
        return {"input_ids": row, "labels": row}


class Deed(TrainerCallback):
    """What is to happen to the last rank in a step."""

    def on_step_begin(self, args, state, control, **kwargs):
        for deed, step in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
            if state.global_step == int(step) and args.process_index == args.world_size - 1:
                os.kill(os.getpid(), DEEDS[deed])


torch.set_num_threads(1)
set_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=13, n_positions=6, n_embd=16, n_layer=1, n_head=2))
unbroken = UnbrokenCallback()
fsdp = {}
if "FSDP2" in os.environ:
    if os.environ["FSDP2"] == "forced":
        import forced_fsdp  # noqa: F401

    wrapped = {"version": 2, "transformer_layer_cls_to_wrap": ["GPT2Block"], "state_dict_type": "SHARDED_STATE_DICT"}
    fsdp = {"fsdp": True, "fsdp_config": wrapped}
arguments = TrainingArguments(
    **fsdp,
    output_dir=unbroken.output_dir("out"),
    save_strategy="no",
    num_train_epochs=unbroken.goal,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    logging_steps=2,
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=Rows(), callbacks=[Deed(), unbroken])
torch.manual_seed(arguments.process_index)  # the ranks draw different masks
trainer.train(resume_from_checkpoint=unbroken.resume)
assert isinstance(trainer.model_wrapped, FSDPModule if fsdp else DistributedDataParallel), type(trainer.model_wrapped)
