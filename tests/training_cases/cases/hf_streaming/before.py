from datasets import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

rows = [
    {"input_ids": [1 + (number * step) % 30 for step in range(1, 9)], "labels": number // 3 % 2} for number in range(72)
]
stream = Dataset.from_list(rows).to_iterable_dataset(num_shards=4).shuffle(seed=3, buffer_size=10).repeat(None)
set_seed(7)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForSequenceClassification(BertConfig(vocab_size=32, max_position_embeddings=16, **sizes))
arguments = TrainingArguments(
    output_dir="out",
    save_strategy="steps",
    save_steps=10,
    max_steps=50,
    per_device_train_batch_size=4,
    logging_steps=1,
    seed=7,
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=stream)
trainer.train()
