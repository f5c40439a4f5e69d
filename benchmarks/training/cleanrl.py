"""PPO and PQN with the settings that CleanRL (Huang et al. 2022) publishes for ``ppo_atari_envpool`` and
``pqn_atari_envpool``, written anew: 8 environments of EnvPool, rollouts of 128 steps in each, four passes in four
minibatches, and a learning rate of 2.5e-4 that falls to 0.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn.functional import mse_loss

from .speed import Running, Training

ACTIONS, ENVS, STEPS = 4, 8, 128
PASSES, MINIBATCH = 4, 256
LEARNING_RATE, GAMMA = 2.5e-4, 0.99


def initial(layer: Any, gain: float = 2**0.5) -> Any:
    """A layer that begins with orthogonal weights."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def body(layer_norm: bool) -> nn.Sequential:
    """The network of Mnih et al. 2015 up to its 512 units."""
    shapes = [[32, 20, 20], [64, 9, 9], [64, 7, 7], [512]]
    convolutions = [nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3)]
    layers: list[nn.Module] = []
    for layer, shape in zip([*convolutions, nn.Linear(3136, 512)], shapes):
        layers += [nn.Flatten()] if shape == [512] else []
        layers += [initial(layer), *([nn.LayerNorm(shape)] if layer_norm else []), nn.ReLU()]
    return nn.Sequential(*layers)


class CleanRL(Training):
    """What both have in common: rollouts, passes over them, and the learning rate."""

    network: nn.Module

    def __init__(self, optimizer: Callable, gradient_norm: float, all_steps: int, seed: int) -> None:
        import envpool

        super().__init__(torch.get_num_threads(), random_steps=0)
        published = dict(episodic_life=True, reward_clip=True)
        self.envs = envpool.make_gymnasium('Breakout-v5', num_envs=ENVS, seed=seed, **published)
        self._optimizer = optimizer(self.network.parameters(), lr=LEARNING_RATE)
        self._gradient_norm, self._all_steps = gradient_norm, all_steps
        self._score, self._scores = np.zeros(ENVS), deque(maxlen=100)  # type: ignore[var-annotated]
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
                action, *more = self.choose(obs)
                next_obs, reward, done = self._step(action)
                steps.append((obs, action, reward, done, *more))
                obs = next_obs
            rollout = [torch.stack(column) for column in zip(*steps)]
            columns = [column.flatten(0, 1) for column in (*rollout[:2], *self.targets(obs, *rollout[2:]))]
            for _ in range(PASSES):
                for rows in torch.randperm(ENVS * STEPS).split(MINIBATCH):
                    self._update(self.loss(*(column[rows] for column in columns)))

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
        nn.utils.clip_grad_norm_(self.network.parameters(), self._gradient_norm)
        self._optimizer.step()
        self.updates += 1


class PPO(CleanRL):
    """Schulman et al. 2017."""

    def __init__(self, all_steps: int, seed: int) -> None:
        heads = [initial(nn.Linear(512, ACTIONS), 0.01), initial(nn.Linear(512, 1), 1.0)]
        self.network = nn.ModuleList([body(layer_norm=False), *heads])
        super().__init__(partial(torch.optim.Adam, eps=1e-5), 0.5, all_steps, seed)

    def heads(self, obs: Tensor) -> Any:
        """The policy and the values in a batch of pixels."""
        features = self.network[0](obs / 255.0)
        return Categorical(logits=self.network[1](features)), self.network[2](features).squeeze(1)

    @torch.no_grad()
    def choose(self, obs: Tensor) -> Any:
        """Actions, drawn from the policy, and what `targets` needs of that step."""
        policy, value = self.heads(obs)
        action = policy.sample()
        return action, policy.log_prob(action), value

    @torch.no_grad()
    def targets(self, last_obs: Tensor, reward: Tensor, done: Tensor, log_prob: Tensor, value: Tensor) -> Any:
        """What `loss` needs besides observations and actions: with GAE lambda 0.95."""
        advantage, going_on = torch.zeros_like(value), GAMMA * ~done
        next_value, next_advantage = self.heads(last_obs)[1], torch.zeros(ENVS)
        for t in reversed(range(STEPS)):
            error = reward[t] + going_on[t] * next_value - value[t]
            advantage[t] = next_advantage = error + going_on[t] * 0.95 * next_advantage
            next_value = value[t]
        return log_prob, value, advantage

    def loss(self, obs: Tensor, action: Tensor, log_prob: Tensor, value: Tensor, advantage: Tensor) -> Tensor:
        """With clip range 0.1 for both heads."""
        policy, new_value = self.heads(obs)
        target, ratio = value + advantage, (policy.log_prob(action) - log_prob).exp()
        gain = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss = torch.max(-gain * ratio, -gain * ratio.clamp(0.9, 1.1)).mean()
        clipped = value + (new_value - value).clamp(-0.1, 0.1)
        value_loss = torch.max((new_value - target) ** 2, (clipped - target) ** 2).mean()
        return policy_loss - 0.01 * policy.entropy().mean() + 0.25 * value_loss


class PQN(CleanRL):
    """Gallici et al. 2025: Q-learning without a replay buffer or a target network, by LayerNorm."""

    def __init__(self, all_steps: int, seed: int) -> None:
        self.network = nn.Sequential(*body(layer_norm=True), initial(nn.Linear(512, ACTIONS)))
        super().__init__(torch.optim.RAdam, 10.0, all_steps, seed)

    @torch.no_grad()
    def choose(self, obs: Tensor) -> Any:
        """The best actions, at first mostly random ones, and their values."""
        epsilon = max(0.01, 1 - 0.99 * self.env_steps / (0.1 * self._all_steps))
        value, action = self.network(obs / 255.0).max(1)
        return torch.where(torch.rand(ENVS) < epsilon, torch.randint(ACTIONS, (ENVS,)), action), value

    @torch.no_grad()
    def targets(self, last_obs: Tensor, reward: Tensor, done: Tensor, value: Tensor) -> Any:
        """Q(lambda) with lambda 0.65."""
        target = torch.zeros_like(value)
        following = self.network(last_obs / 255.0).amax(1)
        for t in reversed(range(STEPS)):
            target[t] = reward[t] + GAMMA * ~done[t] * following
            following = 0.65 * target[t] + 0.35 * value[t]
        return (target,)

    def loss(self, obs: Tensor, action: Tensor, target: Tensor) -> Tensor:
        """The squared error of the values of the actions."""
        return mse_loss(self.network(obs / 255.0).gather(1, action[:, None]).squeeze(1), target)
