"""A tiny GPT-2, made from its configuration, learns to add two digits, with the Trainer of Hugging Face.

Plain transformers but for the lines with `unbroken`.  `python train.py` trains without it.
"""

import os
import sys
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

from unbroken.training.transformers import UnbrokenCallback

PAUSE_SECONDS = float(sys.argv[1]) if sys.argv[1:] else 0.0  # after each step, to have time to watch
SIGNS = {sign: number for number, sign in enumerate("0123456789+=;")}


class Sums(Dataset):
    """All sums of two digits: `3+9=12;`"""

    def __init__(self):
        texts = [f"{a}+{b}={a + b:02d};" for a in range(10) for b in range(10)]
        self.rows = [torch.tensor([SIGNS[sign] for sign in text]) for text in texts]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Pause(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(PAUSE_SECONDS)


torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
set_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=len(SIGNS), n_positions=8, n_embd=32, n_layer=2, n_head=2))

unbroken = UnbrokenCallback(seed=0)
arguments = TrainingArguments(
    output_dir=unbroken.output_dir("out"),
    max_steps=unbroken.goal or 60,
    per_device_train_batch_size=8,  # 13 steps an epoch
    learning_rate=1e-3,
    logging_steps=5,
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    save_strategy="no",  # unbroken says when
)
trainer = Trainer(model=model, args=arguments, train_dataset=Sums(), callbacks=[Pause(), unbroken])
trainer.train(resume_from_checkpoint=unbroken.resume)
