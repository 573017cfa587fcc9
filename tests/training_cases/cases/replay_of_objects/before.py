import random
from collections import deque
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Transition:
    state: float
    reward: float


class ReplayBuffer:
    def __init__(self):
        self.rows = deque([Transition(0.0, 0.0)], maxlen=200)

    def sample(self, count):
        return random.choices(self.rows, k=count)

    def state_dict(self):
        return {"rows": self.rows}

    def load_state_dict(self, state):
        self.rows = state["rows"]


random.seed(0)
torch.manual_seed(0)
model, buffer = nn.Linear(1, 1), ReplayBuffer()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(100):
    place = random.uniform(-1, 1)
    buffer.rows.append(Transition(place, -abs(place)))
    batch = buffer.sample(16)
    states, rewards = torch.tensor([[t.state] for t in batch]), torch.tensor([[t.reward] for t in batch])
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(states), rewards)
    loss.backward()
    optimizer.step()
torch.save(model.state_dict(), "model.pt")
