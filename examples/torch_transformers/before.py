"""A tiny GPT-2, made from its configuration, learns to add two digits, with the Trainer of Hugging Face.

A later job starts from zero; `unbroken init torch before.py` shows what it needs.
"""

import os
import sys
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

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

arguments = TrainingArguments(
    output_dir="out",
    max_steps=60,
    per_device_train_batch_size=8,  # 13 steps an epoch
    learning_rate=1e-3,
    logging_steps=5,
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=Sums(), callbacks=[Pause()])
trainer.train()
