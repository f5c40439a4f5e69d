"""DQN of other libraries, with the options of configs/breakout_lean_dqn_config.py where they have them."""

from typing import Any

import torch
from torch import nn

ACTIONS = 4
EPSILON = 0.1  # all the time: how often a network is asked must not depend on how far a training has come
LEARNING_RATE = 1e-4
GAMMA = 0.99
TARGET_EVERY_UPDATES = 250


class PlainDQN(object):
    """
    DQN in plain PyTorch with the hyper-parameters that CleanRL publishes for ``dqn_atari``, written anew: no
    double, no dueling, 1-step returns, Adam at 1e-4, mean squared error, an update every 4 steps, and a target
    network that is copied every 1,000 steps. The network is that of Mnih et al. 2015, on pixels scaled to [0, 1].
    """

    def __init__(self, device: str = 'cpu') -> None:
        self.online, self._target = self._network().to(device), self._network().to(device)
        self._target.load_state_dict(self.online.state_dict())
        self._optimizer = torch.optim.Adam(self.online.parameters(), lr=LEARNING_RATE)
        self.updates = 0

    @staticmethod
    def _network() -> nn.Sequential:
        convolutions = [nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1)]
        layers = [layer for convolution in convolutions for layer in (convolution, nn.ReLU())]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, ACTIONS))

    def act(self, obs: torch.Tensor) -> torch.Tensor:
        """The best actions in a batch of pixels."""
        with torch.no_grad():
            return self.online(obs / 255.0).argmax(1)

    def update(self, batch: Any) -> None:
        """One step of the optimizer, on a batch of Stable-Baselines3's buffer."""
        with torch.no_grad():
            best = self._target(batch.next_observations / 255.0).amax(1)
            wanted = batch.rewards.flatten() + GAMMA * best * (1 - batch.dones.flatten())
        values = self.online(batch.observations / 255.0).gather(1, batch.actions).squeeze(1)
        loss = nn.functional.mse_loss(wanted, values)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self.updates += 1
        if self.updates % TARGET_EVERY_UPDATES == 0:
            self._target.load_state_dict(self.online.state_dict())
