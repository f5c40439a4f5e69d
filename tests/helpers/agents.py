"""Small agents, in files as programs write them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from breakout_env import PixelDQN

SMALL = dict(obs_shape=[4, 84, 84], action_shape=4, encoder_hidden_size_list=[4, 4, 4, 8])


def small_network(seed: int = 0, **changes: Any) -> PixelDQN:
    torch.manual_seed(seed)
    return PixelDQN(**{**SMALL, **changes})


def write_checkpoint(path: Path, model: torch.nn.Module) -> Path:
    """As DI-engine's learner writes it."""
    optimizer = torch.optim.Adam(model.parameters())
    state = model.state_dict()
    torch.save(dict(model=state, target_model=state, optimizer=optimizer.state_dict(), last_iter=7, last_step=9), path)
    return path


def observations(count: int = 3, frames: int = 4, size: int = 84) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, frames, size, size), dtype=np.uint8)
