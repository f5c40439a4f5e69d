"""Policies with Nature's network, and batches of noise that they learn from, on any device."""

from typing import Any, Dict, List, Union

import numpy as np
import torch
from ding.utils import POLICY_REGISTRY, deep_merge_dicts
from easydict import EasyDict

from breakout_env.replay.buffer import FrameReplayBuffer
from helpers.policies import transitions

POLICIES = ('dqn', 'lean_dqn', 'lean_ppo')
FROM_ROLLOUTS = ('lean_ppo',)
BATCH, NSTEP = 32, 3


def policy_on(device: str, kind: str, seed: int = 0, **learn: Any) -> Any:
    """A policy of DI-engine's registry; a seed gives the same weights on all devices."""
    policy_class = POLICY_REGISTRY.get(kind)
    model = dict(type='pixel_actor_critic' if kind in FROM_ROLLOUTS else 'pixel_dqn', import_names=['breakout_env'])
    options: Dict[str, Any] = dict(
        cuda=torch.device(device).type == 'cuda',
        nstep=NSTEP,
        discount_factor=0.99,
        model=dict(model, obs_shape=[4, 84, 84], action_shape=4),
        learn={**dict(learning_rate=0.0001, target_update_freq=10, log_every_updates=1, autocast=None), **learn},
    )
    torch.manual_seed(seed)
    cfg = EasyDict(deep_merge_dicts(policy_class.default_config(), options))
    return policy_class(cfg, enable_field=['learn', 'collect'])


def batch_for(kind: str, seed: int) -> Union[Dict[str, torch.Tensor], List[Dict[str, Any]]]:
    """A batch that a policy learns from."""
    made = transitions(BATCH, seed=seed)
    if kind not in FROM_ROLLOUTS:
        return made
    obs, action = (torch.stack([one[key] for one in made]) for key in ('obs', 'action'))
    batch, learned = dict(obs=obs, action=action[:, 0], weight=torch.ones(BATCH)), torch.linspace(-1, 1, BATCH)
    return {**batch, 'advantage': learned, 'return': learned.flip(0), 'log_prob': torch.full([BATCH], 0.25).log()}


def filled_buffer(count: int = 256, **options: Any) -> FrameReplayBuffer:
    """A buffer with the same transitions each time, which it samples in the same order."""
    np.random.seed(0)  # from which the buffer takes its own seed
    buffer = FrameReplayBuffer(dict(dict(replay_buffer_size=2 * count, pin_memory=False), **options))
    buffer.push(transitions(count))
    return buffer
