from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EarlyStoppingCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

from unbroken.training.transformers import UnbrokenCallback


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


rows = [
    {"input_ids": [1 + (number * step) % 30 for step in range(1, 9)], "labels": number // 3 % 2} for number in range(60)
]
set_seed(7)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForSequenceClassification(BertConfig(vocab_size=32, max_position_embeddings=16, **sizes))
unbroken = UnbrokenCallback()
arguments = TrainingArguments(
    output_dir=unbroken.output_dir("out"),
    save_strategy="no",
    eval_strategy="epoch",
    metric_for_best_model="accuracy",
    greater_is_better=True,
    lr_scheduler_type="reduce_lr_on_plateau",
    lr_scheduler_kwargs={"patience": 0, "factor": 0.5},
    label_smoothing_factor=0.1,
    num_train_epochs=9,
    per_device_train_batch_size=4,
    learning_rate=1e-2,
    logging_steps=1,
    seed=7,
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(
    model=model,
    args=arguments,
    train_dataset=rows[:40],
    eval_dataset=rows[40:],
    compute_metrics=accuracy,
    callbacks=[EarlyStoppingCallback(4), unbroken],
)
trainer.train(resume_from_checkpoint=unbroken.resume)
