from itertools import pairwise

import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(1)
digits = load_digits()
images, labels = torch.tensor(digits.data[:1000], dtype=torch.float32) / 16, torch.tensor(digits.target[:1000])


def overlay(x, y):
    x = x.clone()
    x[:, :10] = 0
    x[torch.arange(len(x)), y] = x.max()
    return x


class Layer(nn.Linear):
    def __init__(self, ins, outs):
        super().__init__(ins, outs)
        self.opt, self.threshold = torch.optim.Adam(self.parameters(), lr=0.03), 1.5

    def forward(self, x):
        return torch.relu(super().forward(x / (x.norm(2, 1, keepdim=True) + 1e-4)))

    def train_once(self, x_pos, x_neg):
        g_pos, g_neg = self(x_pos).pow(2).mean(1), self(x_neg).pow(2).mean(1)
        loss = nn.functional.softplus(torch.cat([self.threshold - g_pos, g_neg - self.threshold])).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


class Net(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.layers = nn.ModuleList(Layer(*each) for each in pairwise(dims))

    def train_layers(self, x_pos, x_neg, num_epochs):
        for number, layer in enumerate(self.layers):
            for epoch in range(num_epochs):
                loss = layer.train_once(x_pos, x_neg)
                if epoch % 10 == 0:
                    print(f"layer {number}, epoch {epoch}: loss {loss:.4f}")
            x_pos, x_neg = layer(x_pos).detach(), layer(x_neg).detach()


net = Net([64, 60, 60])
x_pos = overlay(images, labels)
x_neg = overlay(images, (labels + torch.randint(1, 10, labels.shape)) % 10)
net.train_layers(x_pos, x_neg, 40)
torch.save(net.state_dict(), "net.pt")
