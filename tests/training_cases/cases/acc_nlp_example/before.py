import torch
from accelerate import Accelerator
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup, set_seed

EPOCHS, SEED = 3, 42


def pad(rows):
    longest = max(len(row[0]) for row in rows)
    inputs = torch.tensor([row[0] + [0] * (longest - len(row[0])) for row in rows])
    return {
        "input_ids": inputs,
        "attention_mask": (inputs > 0).long(),
        "labels": torch.tensor([row[1] for row in rows]),
    }


def main():
    accelerator = Accelerator(cpu=True)
    rows = [([1 + (n * step) % 30 for step in range(1, 3 + n % 9)], n // 3 % 2) for n in range(100)]
    set_seed(SEED)
    train_loader = DataLoader(rows[:80], batch_size=8, shuffle=True, collate_fn=pad)
    eval_loader = DataLoader(rows[80:], batch_size=20, collate_fn=pad)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=32, max_position_embeddings=16, **sizes))
    optimizer = AdamW(params=model.parameters(), lr=5e-3)
    schedule = get_linear_schedule_with_warmup(optimizer, 5, len(train_loader) * EPOCHS)
    model, optimizer, train_loader, eval_loader, schedule = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, schedule
    )
    for epoch in range(EPOCHS):
        model.train()
        for batch in train_loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        model.eval()
        right = 0
        for batch in eval_loader:
            with torch.no_grad():
                found = model(**batch).logits.argmax(-1)
            found, labels = accelerator.gather_for_metrics((found, batch["labels"]))
            right += (found == labels).sum().item()
        accelerator.print(f"epoch {epoch}: {right} of 20")


main()
