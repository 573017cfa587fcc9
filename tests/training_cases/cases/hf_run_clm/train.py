from itertools import chain

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, default_data_collator, set_seed

from unbroken.training.transformers import UnbrokenCallback

BLOCK = 24
texts = [f"{a} and {b} make {a + b}. " for a in range(13) for b in range(13)]
letters = sorted(set("".join(texts)))
flat = list(chain.from_iterable([letters.index(letter) for letter in text] for text in texts))
blocks = [flat[start : start + BLOCK] for start in range(0, len(flat) - BLOCK, BLOCK)]
rows = [{"input_ids": block, "attention_mask": [1] * BLOCK, "labels": block} for block in blocks]

set_seed(7)
sizes = {"n_positions": BLOCK, "n_embd": 16, "n_layer": 2, "n_head": 2}
model = GPT2LMHeadModel(GPT2Config(vocab_size=len(letters), bos_token_id=0, eos_token_id=0, **sizes))
unbroken = UnbrokenCallback()
arguments = TrainingArguments(
    output_dir=unbroken.output_dir("out"),
    save_strategy="no",
    num_train_epochs=2,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    learning_rate=5e-3,
    lr_scheduler_type="cosine",
    warmup_steps=3,
    eval_strategy="steps",
    eval_steps=9,
    logging_steps=1,
    seed=7,
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(
    model=model,
    args=arguments,
    train_dataset=rows[:100],
    eval_dataset=rows[100:],
    data_collator=default_data_collator,
    callbacks=[unbroken],
)
trainer.train(resume_from_checkpoint=unbroken.resume)
