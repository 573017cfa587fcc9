from itertools import pairwise

import torch
from sklearn.datasets import load_digits
from torch import nn

from unbroken.training.torch import Training

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
        for step in training.steps(num_epochs * len(self.layers)):
            number, epoch = divmod(step, num_epochs)
            h_pos, h_neg = x_pos, x_neg
            for layer in self.layers[:number]:
                h_pos, h_neg = layer(h_pos).detach(), layer(h_neg).detach()
            loss = self.layers[number].train_once(h_pos, h_neg)
            training.log(loss=loss)
            if epoch % 10 == 0:
                print(f"layer {number}, epoch {epoch}: loss {loss:.4f}")


net = Net([64, 60, 60])
training = Training(state={"net": net, "optimizers": [layer.opt for layer in net.layers]})
x_pos = overlay(images, labels)
x_neg = overlay(images, (labels + torch.randint(1, 10, labels.shape)) % 10)
net.train_layers(x_pos, x_neg, 40)
training.finish({"net.pt": net.state_dict()})
