"""PPO with the settings that CleanRL (Huang et al. 2022) publishes for ``ppo_atari_envpool``, written anew: 8
environments of EnvPool, rollouts of 128 steps in each, four epochs in four minibatches, and a learning rate of 2.5e-4
that falls to 0.
"""

from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from .speed import Running, Training

ACTIONS, ENVS, STEPS = 4, 8, 128
EPOCHS, MINIBATCH = 4, 256
LEARNING_RATE, GAMMA, GAE_LAMBDA = 2.5e-4, 0.99, 0.95


def initial(layer: Any, gain: float = 2**0.5) -> Any:
    """A layer that begins with orthogonal weights."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def body() -> nn.Sequential:
    """The network of Mnih et al. 2015 up to its 512 units."""
    layers: list[nn.Module] = []
    for convolution in (nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3)):
        layers += [initial(convolution), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), initial(nn.Linear(3136, 512)), nn.ReLU())


class PPO(Training):
    """Schulman et al. 2017."""

    def __init__(self, all_steps: int, seed: int) -> None:
        import envpool

        super().__init__(torch.get_num_threads(), random_steps=0)
        heads = [initial(nn.Linear(512, ACTIONS), 0.01), initial(nn.Linear(512, 1), 1.0)]
        self.network = nn.ModuleList([body(), *heads])
        published = dict(episodic_life=True, reward_clip=True)
        self.envs = envpool.make_gymnasium('Breakout-v5', num_envs=ENVS, seed=seed, **published)
        self._optimizer = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE, eps=1e-5)
        self._all_steps = all_steps
        self._score = np.zeros(ENVS)
        self._scores: deque[float] = deque(maxlen=100)
        self.env_steps = self.updates = 0

    def scores(self) -> list[float]:
        """Of the last 100 full games."""
        return list(self._scores)

    def run(self, running: Running) -> None:
        obs = torch.from_numpy(self.envs.reset()[0])
        while running(self.env_steps, self.updates):
            left = 1 - self.env_steps / self._all_steps
            self._optimizer.param_groups[0]['lr'] = LEARNING_RATE * left
            steps = []
            for _ in range(STEPS):
                action, log_prob, value = self.choose(obs)
                next_obs, reward, done = self._step(action)
                steps.append((obs, action, log_prob, value, reward, done))
                obs = next_obs
            *rollout, value, reward, done = [torch.stack(column) for column in zip(*steps)]
            advantage = self._advantages(obs, value, reward, done)
            columns = [column.flatten(0, 1) for column in (*rollout, value, advantage)]
            for _ in range(EPOCHS):
                for rows in torch.randperm(ENVS * STEPS).split(MINIBATCH):
                    self._update(self._loss(*(column[rows] for column in columns)))

    def _step(self, action: Tensor) -> Any:
        next_obs, reward, terminated, truncated, info = self.envs.step(action.numpy())
        self._score += info['reward']
        for env in np.flatnonzero((terminated & (info['lives'] == 0)) | truncated):
            self._scores.append(float(self._score[env]))
            self._score[env] = 0
        self.env_steps += ENVS
        return torch.from_numpy(next_obs), torch.from_numpy(reward), torch.from_numpy(terminated | truncated)

    def _update(self, loss: Tensor) -> None:
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 0.5)
        self._optimizer.step()
        self.updates += 1

    def _heads(self, obs: Tensor) -> Any:
        """The policy and the values in a batch of pixels."""
        features = self.network[0](obs / 255.0)
        return Categorical(logits=self.network[1](features)), self.network[2](features).squeeze(1)

    @torch.no_grad()
    def choose(self, obs: Tensor) -> Any:
        """Actions, drawn from the policy, their log probabilities, and values."""
        policy, value = self._heads(obs)
        action = policy.sample()
        return action, policy.log_prob(action), value

    @torch.no_grad()
    def _advantages(self, last_obs: Tensor, value: Tensor, reward: Tensor, done: Tensor) -> Tensor:
        advantage, going_on = torch.zeros_like(value), GAMMA * ~done
        next_value, next_advantage = self._heads(last_obs)[1], torch.zeros(ENVS)
        for t in reversed(range(STEPS)):
            error = reward[t] + going_on[t] * next_value - value[t]
            advantage[t] = next_advantage = error + going_on[t] * GAE_LAMBDA * next_advantage
            next_value = value[t]
        return advantage

    def _loss(self, obs: Tensor, action: Tensor, log_prob: Tensor, value: Tensor, advantage: Tensor) -> Tensor:
        """With clip range 0.1 for both heads."""
        policy, new_value = self._heads(obs)
        target, ratio = value + advantage, (policy.log_prob(action) - log_prob).exp()
        gain = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss = torch.max(-gain * ratio, -gain * ratio.clamp(0.9, 1.1)).mean()
        clipped = value + (new_value - value).clamp(-0.1, 0.1)
        value_loss = torch.max((new_value - target) ** 2, (clipped - target) ** 2).mean()
        return policy_loss - 0.01 * policy.entropy().mean() + 0.25 * value_loss
