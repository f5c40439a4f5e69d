"""A network and an environment of one's own; ``config.py`` names this module in ``import_names``."""

import socket

import torch
from ding.utils import ENV_REGISTRY, MODEL_REGISTRY

from breakout_env import BreakoutEnv, PixelInput


@MODEL_REGISTRY.register('my_network')
class MyNetwork(PixelInput, torch.nn.Module):
    """A Q network. ``PixelInput`` takes pixels 0..255 and gives them to ``forward_scaled``, scaled to [0, 1]."""

    def __init__(self, obs_shape, action_shape, width=64):
        super().__init__()
        frames, height, side = obs_shape
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(frames, 16, kernel_size=8, stride=8),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(16 * (height // 8) * (side // 8), width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, action_shape),
        )

    def forward_scaled(self, x):
        return dict(logit=self.layers(x))


@ENV_REGISTRY.register('my_breakout')
class MyBreakout(BreakoutEnv):
    """Breakout that sends its points to a display on the network: a socket that is released with the environment."""

    def open_resources(self):
        self.display = self.own(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))

    def step(self, action):
        timestep = super().step(action)
        if timestep.reward > 0:
            self.display.sendto(b'point', ('127.0.0.1', 9999))
        return timestep
