from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

from unbroken.training.transformers import UnbrokenCallback

rows = [{"input_ids": [1 + (number * step) % 30 for step in range(1, 9)], "labels": number % 2} for number in range(48)]
set_seed(7)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForSequenceClassification(BertConfig(vocab_size=32, max_position_embeddings=16, **sizes))
unbroken = UnbrokenCallback()
arguments = TrainingArguments(
    output_dir=unbroken.output_dir("out"),
    save_strategy="no",
    eval_strategy="no",
    load_best_model_at_end=True,
    num_train_epochs=2,
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
)
callbacks = [unbroken]
trainer = Trainer(model=model, args=arguments, train_dataset=rows[:36], eval_dataset=rows[36:], callbacks=callbacks)
trainer.train(resume_from_checkpoint=unbroken.resume)
