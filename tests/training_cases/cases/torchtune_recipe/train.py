import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from unbroken.training.torch import Training

EPOCHS, ACCUMULATED, RANK, WORDS, LENGTH = 3, 4, 4, 32, 24


class LoRALinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.lora_a, self.lora_b = nn.Linear(inputs, RANK, bias=False), nn.Linear(RANK, outputs, bias=False)
        self.dropout = nn.Dropout(0.1)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x):
        return self.base(x) + 2.0 * self.lora_b(self.lora_a(self.dropout(x)))


class Decoder(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.words = nn.Embedding(WORDS, size).requires_grad_(False)
        self.qkv, self.out = LoRALinear(size, 3 * size), LoRALinear(size, size)
        self.head = nn.Linear(size, WORDS, bias=False).requires_grad_(False)

    def forward(self, tokens):
        x = self.words(tokens)
        query, key, value = self.qkv(x).chunk(3, -1)
        return self.head(x + self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True)))


def warmup_cosine(step, warmup=3, total=30):
    return step / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


torch.manual_seed(5)
tokens = torch.stack([(torch.arange(LENGTH + 1) * start) % WORDS for start in range(1, 121)])
data = TensorDataset(tokens[:, :-1], tokens[:, 1:])
model = Decoder()
optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=2e-2)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup_cosine)
training = Training(state={"model": model, "optimizer": optimizer, "schedule": schedule}, seed=5)
loader = training.loader(data, batch_size=3)
for _ in training.epochs(EPOCHS):
    for inputs, labels in training.batches(loader):
        loss = F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten(), reduction="sum")
        (loss / labels.numel() / ACCUMULATED).backward()
        training.log(loss=loss.item() / labels.numel())
        if (training.batch + 1) % ACCUMULATED == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
adapter = {name: value for name, value in model.state_dict().items() if "lora" in name}
training.finish({"adapter.pt": adapter})
