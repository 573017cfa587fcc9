import math
import random
from collections import deque, namedtuple
from itertools import count

import torch
from torch import nn, optim
from torch.nn import functional as F

BATCH_SIZE, GAMMA, EPS_START, EPS_END, EPS_DECAY, TAU, LR = 16, 0.99, 0.9, 0.05, 100, 0.01, 3e-3
Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
random.seed(3)
torch.manual_seed(3)


class CartPole:
    def reset(self):
        self.state, self.age = [random.uniform(-0.05, 0.05) for _ in range(4)], 0
        return self.state

    def step(self, action):
        x, v, angle, w = self.state
        force = (10.0 if action else -10.0) + 0.05 * w**2 * math.sin(angle)
        mass = 0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1)
        turn = (9.8 * math.sin(angle) - math.cos(angle) * force / 1.1) / mass
        push = (force - 0.05 * turn * math.cos(angle)) / 1.1
        self.state = [x + 0.02 * v, v + 0.02 * push, angle + 0.02 * w, w + 0.02 * turn]
        self.age += 1
        return self.state, 1.0, abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21 or self.age > 200


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1, self.layer2, self.layer3 = nn.Linear(4, 32), nn.Linear(32, 32), nn.Linear(32, 2)

    def forward(self, x):
        return self.layer3(F.relu(self.layer2(F.relu(self.layer1(x)))))


policy_net, target_net = DQN(), DQN()
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.AdamW(policy_net.parameters(), lr=LR, amsgrad=True)
memory = ReplayMemory(100)
env = CartPole()
steps_done = 0
episode_durations = []


def select_action(state):
    global steps_done
    eps = EPS_END + (EPS_START - EPS_END) * math.exp(-steps_done / EPS_DECAY)
    steps_done += 1
    if random.random() > eps:
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(2)]])


def optimize_model():
    if len(memory) < BATCH_SIZE:
        return
    batch = Transition(*zip(*memory.sample(BATCH_SIZE), strict=True))
    non_final = torch.tensor([s is not None for s in batch.next_state])
    next_values = torch.zeros(BATCH_SIZE)
    with torch.no_grad():
        next_values[non_final] = target_net(torch.cat([s for s in batch.next_state if s is not None])).max(1).values
    values = policy_net(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
    loss = F.smooth_l1_loss(values, (next_values * GAMMA + torch.cat(batch.reward)).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()


total = 0
while total < 300:
    state = torch.tensor([env.reset()])
    for t in count():
        action = select_action(state)
        observation, reward, terminated = env.step(action.item())
        next_state = None if terminated else torch.tensor([observation])
        memory.push(state, action, next_state, torch.tensor([reward]))
        state = next_state
        optimize_model()
        target, policy = target_net.state_dict(), policy_net.state_dict()
        for key in policy:
            target[key] = policy[key] * TAU + target[key] * (1 - TAU)
        target_net.load_state_dict(target)
        total += 1
        if terminated:
            episode_durations.append(t + 1)
            print(f"episode {len(episode_durations)}: {t + 1} steps")
        if terminated or total == 300:
            break
torch.save(policy_net.state_dict(), "policy.pt")
