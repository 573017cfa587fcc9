import numpy as np
import torch
from torch import nn, optim
from torch.distributions.categorical import Categorical

seed, num_envs, num_steps, num_iterations, update_epochs, num_minibatches = 1, 4, 32, 12, 2, 2
learning_rate, gamma, gae_lambda, clip_coef, ent_coef, vf_coef, max_grad_norm = 3e-3, 0.99, 0.95, 0.2, 0.01, 0.5, 0.5
batch_size = num_envs * num_steps


class Walk:
    """A walk on a line that is pushed by chance; it ends at either side."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.place, self.speed = self.rng.normal(0, 0.3), 0.0
        return self.observation()

    def observation(self):
        return np.array([self.place, self.speed], dtype=np.float32)

    def step(self, action):
        self.speed = 0.9 * self.speed + 0.1 * (1 if action else -1) + 0.05 * self.rng.normal()
        self.place += self.speed
        done = abs(self.place) > 2
        return (self.reset() if done else self.observation()), 1.0 - abs(self.place), done


class VectorEnv:
    def __init__(self):
        self.envs = [Walk(seed + i) for i in range(num_envs)]

    def reset(self):
        return np.stack([env.reset() for env in self.envs])

    def step(self, actions):
        found = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        return tuple(np.array(each, dtype=np.float32) for each in zip(*found, strict=True))


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.actor = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


np.random.seed(seed)
torch.manual_seed(seed)
envs = VectorEnv()
agent = Agent()
optimizer = optim.Adam(agent.parameters(), lr=learning_rate, eps=1e-5)
obs = torch.zeros(num_steps, num_envs, 2)
actions, logprobs, rewards, dones, values = (torch.zeros(num_steps, num_envs) for _ in range(5))

global_step = 0
next_obs, next_done = torch.tensor(envs.reset()), torch.zeros(num_envs)
for iteration in range(1, num_iterations + 1):
    optimizer.param_groups[0]["lr"] = (1.0 - (iteration - 1.0) / num_iterations) * learning_rate
    for step in range(num_steps):
        global_step += num_envs
        obs[step], dones[step] = next_obs, next_done
        with torch.no_grad():
            action, logprobs[step], _, value = agent.get_action_and_value(next_obs)
        actions[step], values[step] = action, value.flatten()
        next_obs, reward, next_done = map(torch.tensor, envs.step(action.numpy()))
        rewards[step] = reward

    with torch.no_grad():
        next_value = agent.get_value(next_obs).flatten()
        advantages, lastgaelam = torch.zeros_like(rewards), 0
        for t in reversed(range(num_steps)):
            following_done = next_done if t == num_steps - 1 else dones[t + 1]
            following = next_value if t == num_steps - 1 else values[t + 1]
            delta = rewards[t] + gamma * following * (1.0 - following_done) - values[t]
            advantages[t] = lastgaelam = delta + gamma * gae_lambda * (1.0 - following_done) * lastgaelam
        returns = advantages + values

    b_obs, b_actions, b_logprobs = obs.reshape(-1, 2), actions.reshape(-1), logprobs.reshape(-1)
    b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)
    b_inds = np.arange(batch_size)
    for _ in range(update_epochs):
        np.random.shuffle(b_inds)
        for mb_inds in np.split(b_inds, num_minibatches):
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions[mb_inds])
            ratio = (newlogprob - b_logprobs[mb_inds]).exp()
            mb = (b_advantages[mb_inds] - b_advantages[mb_inds].mean()) / (b_advantages[mb_inds].std() + 1e-8)
            pg_loss = torch.max(-mb * ratio, -mb * torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)).mean()
            v_loss = 0.5 * ((newvalue.flatten() - b_returns[mb_inds]) ** 2).mean()
            loss = pg_loss - ent_coef * entropy.mean() + v_loss * vf_coef
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), max_grad_norm)
            optimizer.step()
    print(f"global_step={global_step}, reward={rewards.mean().item():.3f}")
torch.save(agent.state_dict(), "agent.pt")
