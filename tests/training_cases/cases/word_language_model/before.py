import math
import pydoc_data.topics

import torch
from torch import nn

emsize, nhid, nlayers, dropout, clip, bptt, epochs = 16, 24, 2, 0.2, 0.25, 12, 3
torch.manual_seed(1111)

words = pydoc_data.topics.topics["assignment"].split()
vocabulary = sorted(set(words))
ids = torch.tensor([vocabulary.index(word) for word in words])


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data[: nbatch * bsz].view(bsz, -1).t().contiguous()


train_data, val_data = batchify(ids[:1200], 4), batchify(ids[1200:1500], 4)


class RNNModel(nn.Module):
    def __init__(self, ntoken):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, emsize)
        self.rnn = nn.LSTM(emsize, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        return self.decoder(self.drop(output)).view(-1, self.decoder.out_features), hidden

    def init_hidden(self, bsz):
        return torch.zeros(nlayers, bsz, nhid), torch.zeros(nlayers, bsz, nhid)


def repackage_hidden(h):
    return tuple(v.detach() for v in h)


def get_batch(source, i):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].view(-1)


def evaluate(data_source):
    model.eval()
    total_loss, hidden = 0.0, model.init_hidden(4)
    with torch.no_grad():
        for i in range(0, data_source.size(0) - 1, bptt):
            data, targets = get_batch(data_source, i)
            output, hidden = model(data, hidden)
            total_loss += len(data) * criterion(output, targets).item()
    return total_loss / (len(data_source) - 1)


def train(lr):
    model.train()
    hidden = model.init_hidden(4)
    for batch, i in enumerate(range(0, train_data.size(0) - 1, bptt)):
        data, targets = get_batch(train_data, i)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        if batch % 10 == 0:
            print(f"| {batch} batches | lr {lr:.2f} | ppl {math.exp(loss.item()):.2f}")


model = RNNModel(len(vocabulary))
criterion = nn.CrossEntropyLoss()
lr, best_val_loss = 20.0, None
for epoch in range(epochs):
    train(lr)
    val_loss = evaluate(val_data)
    print(f"| end of epoch {epoch} | valid loss {val_loss:.4f}")
    if best_val_loss is None or val_loss < best_val_loss:
        torch.save(model.state_dict(), "model.pt")
        best_val_loss = val_loss
    else:
        lr /= 4.0
