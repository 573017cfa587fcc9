import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


def pad(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    inputs = torch.tensor([row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows])
    labels = torch.tensor([row["labels"] for row in rows])
    return {"input_ids": inputs, "attention_mask": (inputs > 0).long(), "labels": labels}


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


rows = [
    {"input_ids": [1 + (number * step) % 30 for step in range(1, 3 + number % 12)], "labels": number // 3 % 2}
    for number in range(72)
]
set_seed(7)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForSequenceClassification(BertConfig(vocab_size=32, max_position_embeddings=16, **sizes))
arguments = TrainingArguments(
    output_dir="out",
    save_strategy="epoch",
    load_best_model_at_end=True,
    eval_strategy="epoch",
    metric_for_best_model="accuracy",
    num_train_epochs=3,
    per_device_train_batch_size=4,
    train_sampling_strategy="group_by_length",
    learning_rate=5e-3,
    logging_steps=1,
    seed=7,
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(
    model=model,
    args=arguments,
    train_dataset=rows[:60],
    eval_dataset=rows[60:],
    data_collator=pad,
    compute_metrics=accuracy,
)
trainer.train()
