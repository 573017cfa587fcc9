import copy

from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


class Average(TrainerCallback):
    def on_train_begin(self, args, state, control, model, **kwargs):
        self.average = copy.deepcopy(model.classifier)

    def on_step_end(self, args, state, control, model, **kwargs):
        for mean, value in zip(self.average.parameters(), model.classifier.parameters(), strict=True):
            mean.data.lerp_(value.data, 0.1)


rows = [
    {"input_ids": [1 + (number * step) % 30 for step in range(1, 9)], "labels": number // 3 % 2} for number in range(60)
]
set_seed(7)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForSequenceClassification(BertConfig(vocab_size=32, max_position_embeddings=16, **sizes))
arguments = TrainingArguments(
    output_dir="out",
    save_strategy="epoch",
    num_train_epochs=3,
    per_device_train_batch_size=4,
    learning_rate=1e-2,
    logging_steps=1,
    seed=7,
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[Average()])
trainer.train()
