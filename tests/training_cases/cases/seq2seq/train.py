import random

import torch
import torch.nn.functional as F
from torch import nn, optim

from unbroken.training.torch import Training, Variables

SOS, EOS, hidden_size, teacher_forcing_ratio = 0, 1, 24, 0.5
random.seed(9)
torch.manual_seed(9)
# A number in words is translated into the one after it.
letters = "abcdefghij"
pairs = [(str(n), str(n + 1)) for n in range(100, 400)]


def tensor_from(word, base):
    return torch.tensor([ord(c) - ord(base) + 2 for c in word] + [EOS])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.gru = nn.Embedding(12, hidden_size), nn.GRU(hidden_size, hidden_size)

    def forward(self, input):
        return self.gru(self.embedding(input).unsqueeze(1))


class AttnDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.dropout = nn.Embedding(12, hidden_size), nn.Dropout(0.1)
        self.attn = nn.Linear(hidden_size, hidden_size)
        self.gru, self.out = nn.GRU(2 * hidden_size, hidden_size), nn.Linear(hidden_size, 12)

    def forward(self, input, hidden, encoder_outputs):
        embedded = self.dropout(self.embedding(input)).view(1, 1, -1)
        weights = F.softmax(encoder_outputs[:, 0] @ self.attn(hidden[0, 0]), dim=0)
        context = (weights @ encoder_outputs[:, 0]).view(1, 1, -1)
        output, hidden = self.gru(torch.cat([embedded, context], 2), hidden)
        return self.out(output[0]), hidden


def train(input_tensor, target_tensor):
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()
    encoder_outputs, hidden = encoder(input_tensor)
    decoder_input, loss = torch.tensor([SOS]), 0
    use_teacher_forcing = random.random() < teacher_forcing_ratio
    for target in target_tensor:
        output, hidden = decoder(decoder_input, hidden, encoder_outputs)
        loss = loss + F.cross_entropy(output, target.view(1))
        decoder_input = target.view(1) if use_teacher_forcing else output.argmax(1).detach()
        if decoder_input.item() == EOS:
            break
    loss.backward()
    encoder_optimizer.step()
    decoder_optimizer.step()
    return loss.item() / len(target_tensor)


encoder, decoder = Encoder(), AttnDecoder()
encoder_optimizer = optim.Adam(encoder.parameters(), lr=0.005)
decoder_optimizer = optim.Adam(decoder.parameters(), lr=0.005)
variables = Variables(plot_losses=[], plot_loss_total=0)
models = {"encoder": encoder, "decoder": decoder, "variables": variables}
training = Training(state={**models, "optimizers": [encoder_optimizer, decoder_optimizer]})
for step in training.steps(120):
    iter, plot_losses = step + 1, variables["plot_losses"]
    one, other = random.choice(pairs)
    loss = train(tensor_from(one, "0"), tensor_from(other, "0"))
    training.log(loss=loss)
    variables["plot_loss_total"] += loss
    if iter % 20 == 0:
        plot_losses.append(variables["plot_loss_total"] / 20)
        variables["plot_loss_total"] = 0
        print(f"{iter}: {plot_losses[-1]:.4f}")
losses = {"losses": torch.tensor(variables["plot_losses"])}
training.finish({"encoder.pt": encoder.state_dict(), "decoder.pt": decoder.state_dict(), "losses.pt": losses})
