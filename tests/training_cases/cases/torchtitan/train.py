import pydoc_data.topics

import torch
from torch import nn
from torch.utils.data import IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from unbroken.training.torch import Training

training_steps, seq_len, batch_size, warmup = 60, 24, 8, 6
torch.manual_seed(33)
documents = [text for _, text in sorted(pydoc_data.topics.topics.items())][:40]


class TextDataset(IterableDataset):
    """Packs documents to sequences, over and over."""

    def __init__(self):
        self._sample_idx = 0
        self._token_buffer = []

    def __iter__(self):
        while True:
            while self._sample_idx < len(documents):
                self._token_buffer += [ord(c) % 128 for c in documents[self._sample_idx][:500]]
                self._sample_idx += 1
                while len(self._token_buffer) > seq_len:
                    x = torch.tensor(self._token_buffer[: seq_len + 1])
                    self._token_buffer = self._token_buffer[seq_len + 1 :]
                    yield x[:-1], x[1:]
            self._sample_idx = 0

    def state_dict(self):
        return {"token_buffer": self._token_buffer, "sample_idx": self._sample_idx}

    def load_state_dict(self, state_dict):
        self._sample_idx, self._token_buffer = state_dict["sample_idx"], state_dict["token_buffer"]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.drop = nn.Embedding(128, 24), nn.Dropout(0.1)
        self.rnn, self.head = nn.GRU(24, 32, batch_first=True), nn.Linear(32, 128)

    def forward(self, x):
        return self.head(self.drop(self.rnn(self.embedding(x))[0]))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup))
dataloader = StatefulDataLoader(TextDataset(), batch_size=batch_size)

parts = {"model": model, "optimizer": optimizer, "lr_scheduler": lr_scheduler, "dataloader": dataloader}
training = Training(state=parts)
for _ in training.epochs(training_steps, "steps"):
    for inputs, targets in training.batches(dataloader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        lr_scheduler.step()
        step = training.step + 1
        training.log(loss=loss.item(), tokens=step * targets.numel())
        if step % 10 == 0:
            print(f"step: {step}  loss: {loss.item():.4f}  tokens: {step * targets.numel():,}")
training.finish({"model.pt": model.state_dict()})
