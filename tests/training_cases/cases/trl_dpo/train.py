import copy
from collections import defaultdict

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from unbroken.training.transformers import UnbrokenCallback

WORDS = 32


class DPOTrainer(Trainer):
    def __init__(self, *args, reference, **options):
        super().__init__(*args, **options)
        self.reference, self.stored = reference.eval(), defaultdict(list)

    def likelihood(self, model, tokens):
        scores = F.log_softmax(model(input_ids=tokens[:, :-1]).logits, -1)
        return scores.gather(2, tokens[:, 1:, None]).sum((1, 2))

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        rewards = []
        for tokens in (inputs["chosen"], inputs["rejected"]):
            with torch.no_grad():
                expected = self.likelihood(self.reference, tokens)
            rewards.append(0.1 * (self.likelihood(model, tokens) - expected))
        self.stored["margin"].append((rewards[0] - rewards[1]).mean().item())
        return -F.logsigmoid(rewards[0] - rewards[1]).mean()

    def log(self, logs, *rest):
        logs |= {name: sum(values) / len(values) for name, values in self.stored.items() if values}
        self.stored.clear()
        super().log(logs, *rest)


rows = [
    {"chosen": [(start * step) % WORDS for step in range(9)], "rejected": [(start + step) % WORDS for step in range(9)]}
    for start in range(1, 73)
]
set_seed(7)
model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=16, n_embd=16, n_layer=1, n_head=2))
unbroken = UnbrokenCallback()
arguments = TrainingArguments(
    output_dir=unbroken.output_dir("out"),
    save_strategy="no",
    num_train_epochs=2,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    learning_rate=5e-3,
    logging_steps=1,
    remove_unused_columns=False,
    seed=7,
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
)
reference = copy.deepcopy(model)
trainer = DPOTrainer(model=model, args=arguments, train_dataset=rows, reference=reference, callbacks=[unbroken])
trainer.train(resume_from_checkpoint=unbroken.resume)
