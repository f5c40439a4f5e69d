"""Small agents, in files as programs write them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from breakout_env import PixelDQN

SMALL = dict(obs_shape=[4, 84, 84], action_shape=4, encoder_hidden_size_list=[4, 4, 4, 8])


def small_network(seed: int = 0, **changes: Any) -> PixelDQN:
    torch.manual_seed(seed)
    return PixelDQN(**{**SMALL, **changes})


def config_of(
    name: str = 'pixel_dqn', env: Mapping = {}, sizes: Mapping = SMALL, on_policy: bool = False, **model: Any
) -> dict:
    """What a run's merged config says of its network, by default that of ``small_network``."""
    return dict(env=dict(env), policy=dict(on_policy=on_policy, model={**sizes, **model, 'type': name}))


SMALL_CONFIG = config_of()


def write_checkpoint(path: Path, model: torch.nn.Module, config: Mapping = SMALL_CONFIG) -> Path:
    """As DI-engine's learner writes it, and the merged config in the folder of its run."""
    folder = path.parent.parent if path.parent.name == 'ckpt' else path.parent
    path.parent.mkdir(parents=True, exist_ok=True)
    optimizer = torch.optim.Adam(model.parameters())
    state = model.state_dict()
    torch.save(dict(model=state, target_model=state, optimizer=optimizer.state_dict(), last_iter=7, last_step=9), path)
    text = f'exp_config = {dict(config, stop_value=1)}'
    (folder / 'total_config.py').write_text(text.replace("'stop_value': 1", '\'stop_value\': float("inf")'))
    return path


def observations(count: int = 3, frames: int = 4, size: int = 84) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, frames, size, size), dtype=np.uint8)
