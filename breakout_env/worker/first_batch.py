"""A network that does not take the environment's observations is told so at its first batch, whoever wrote it."""

from typing import Any, Mapping

import numpy as np
import torch
from gym.spaces import Box

from ..envs.pixel_check import PAIRS


def check_first_batch(policy: Any, observation_space: Any) -> None:
    """
    Overview:
        Pass an observation of uint8 pixels through the network of a policy. DI-engine's evaluators cast pixels to \
        float32, which any network takes, so a network that does not scale would fail only in the first collection, \
        in a sentence of PyTorch's about types.
    Arguments:
        - policy (:obj:`Any`): Any mode of a policy that can evaluate.
        - observation_space (:obj:`Any`): The environment's; other observations than uint8 pixels are not checked.
    Raises:
        - ValueError: If the network fails; the message names it, the observation, and the pairs that fit.
    """
    if observation_space.dtype != np.uint8 or len(observation_space.shape) != 3:
        return
    obs = torch.zeros(observation_space.shape, dtype=torch.uint8)
    try:
        with torch.random.fork_rng(devices=[]):
            policy.get_attribute('forward_eval')({0: obs})
    except RuntimeError as error:
        network = type(policy.get_attribute('model')).__name__
        raise ValueError(
            f'the network {network} does not take the observations of the environment, uint8 {tuple(obs.shape)}: '
            f'{error}. {PAIRS}'
        ) from error
    policy.get_attribute('reset_eval')([0])


def check_first_batch_for_frames(policy: Any, policy_cfg: Mapping) -> None:
    """The same where nothing but the policy's config is known: with the buffer ``frame``, observations are uint8."""
    buffer, shape = policy_cfg['other'].get('replay_buffer', {}), policy_cfg['model'].get('obs_shape')
    if buffer.get('type') == 'frame' and isinstance(shape, (list, tuple)):
        check_first_batch(policy, Box(0, 255, tuple(shape), np.uint8))
