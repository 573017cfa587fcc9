import math
import random
from collections import deque, namedtuple

import torch
from torch import nn, optim
from torch.nn import functional as F

from unbroken.training.torch import Training, Variables

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

    def state_dict(self):
        return {"memory": [tuple(each) for each in self.memory]}

    def load_state_dict(self, state_dict):
        self.memory.clear()
        self.memory.extend(Transition(*each) for each in state_dict["memory"])


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
variables = Variables(steps_done=0, episode_durations=[], state=None)


def select_action(state):
    eps = EPS_END + (EPS_START - EPS_END) * math.exp(-variables["steps_done"] / EPS_DECAY)
    variables["steps_done"] += 1
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


parts = {"policy": policy_net, "target": target_net, "optimizer": optimizer, "memory": memory, "variables": variables}
training = Training(state=parts)
if training.step:
    env.state, env.age = variables["env"]
for _ in training.steps(300):
    state = torch.tensor([env.reset()]) if variables["state"] is None else variables["state"]
    action = select_action(state)
    observation, reward, terminated = env.step(action.item())
    next_state = None if terminated else torch.tensor([observation])
    memory.push(state, action, next_state, torch.tensor([reward]))
    optimize_model()
    target, policy = target_net.state_dict(), policy_net.state_dict()
    for key in policy:
        target[key] = policy[key] * TAU + target[key] * (1 - TAU)
    target_net.load_state_dict(target)
    if terminated:
        variables["episode_durations"].append(env.age)
        training.log(duration=env.age)
        print(f"episode {len(variables['episode_durations'])}: {env.age} steps")
    variables.update(state=next_state, env=(env.state, env.age))
training.finish({"policy.pt": policy_net.state_dict()})
