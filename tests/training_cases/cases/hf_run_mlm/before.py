import torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments, set_seed

MASK, WORDS = 31, 32


def mask_words(rows):
    """80 % of the chosen words become the mask, 10 % another word, as DataCollatorForLanguageModeling has it."""
    inputs = torch.tensor([row["input_ids"] for row in rows])
    labels = inputs.clone()
    chosen = torch.bernoulli(torch.full(inputs.shape, 0.25)).bool()
    labels[~chosen] = -100
    masked = torch.bernoulli(torch.full(inputs.shape, 0.8)).bool() & chosen
    other = torch.bernoulli(torch.full(inputs.shape, 0.5)).bool() & chosen & ~masked
    inputs[masked] = MASK
    inputs[other] = torch.randint(MASK, inputs.shape)[other]
    return {"input_ids": inputs, "labels": labels}


rows = [{"input_ids": [(start * step) % MASK for step in range(1, 17)]} for start in range(1, 61)]
set_seed(7)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForMaskedLM(BertConfig(vocab_size=WORDS, max_position_embeddings=16, **sizes))
arguments = TrainingArguments(
    output_dir="out",
    save_strategy="epoch",
    num_train_epochs=3,
    per_device_train_batch_size=4,
    learning_rate=5e-3,
    logging_steps=1,
    seed=7,
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=rows, data_collator=mask_words)
trainer.train()
