"""
DQN in plain torch with the hyper-parameters that CleanRL publishes for ``dqn_atari``, written anew from these.

No double, no dueling, 1-step returns; Adam at 1e-4, batches of 32 from 1 environment, an update every 4 steps, mean
squared error, a target network that is copied every 1,000 steps, and Stable-Baselines3's replay buffer.
"""

from typing import Any

import torch
from torch import nn

LEARNING_RATE = 1e-4
GAMMA = 0.99
TARGET_EVERY_STEPS = 1000
STEPS_PER_UPDATE = 4


def network(actions: int) -> nn.Sequential:
    """Nature's (Mnih et al. 2015), on pixels scaled to [0, 1]."""
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, 512),
        nn.ReLU(),
        nn.Linear(512, actions),
    )


class PlainDQN(object):
    """
    Overview:
        Two networks and an optimizer.
    Interfaces:
        ``act``, ``update``.
    """

    def __init__(self, actions: int) -> None:
        self._online, self._target = network(actions), network(actions)
        self._target.load_state_dict(self._online.state_dict())
        self._optimizer = torch.optim.Adam(self._online.parameters(), lr=LEARNING_RATE)
        self.updates = 0

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """The best actions in a batch of pixels."""
        with torch.no_grad():
            return self._online(obs / 255.0).argmax(1)

    def update(self, batch: Any) -> None:
        """One step of the optimizer, on a batch of Stable-Baselines3's buffer."""
        with torch.no_grad():
            best = self._target(batch.next_observations / 255.0).amax(1)
            wanted = batch.rewards.flatten() + GAMMA * best * (1 - batch.dones.flatten())
        values = self._online(batch.observations / 255.0).gather(1, batch.actions).squeeze(1)
        loss = nn.functional.mse_loss(wanted, values)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self.updates += 1
        if self.updates % (TARGET_EVERY_STEPS // STEPS_PER_UPDATE) == 0:
            self._target.load_state_dict(self._online.state_dict())
