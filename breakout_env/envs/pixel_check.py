"""Pixels are 0..255 (uint8), for a model that scales them, or scaled to [0, 1] (float32), for one that does not."""

from typing import Any, Callable, Mapping

import numpy as np
import torch
from ding.utils import BUFFER_REGISTRY, MODEL_REGISTRY, POLICY_REGISTRY
from easydict import EasyDict
from gym.spaces import Box

from ..utils.imports import import_parts
from ..utils.options import section, shown

PAIRS = (
    "Choose obs_dtype='uint8' in the env with a model that scales (pixel_dqn and the other pixel models, or one with "
    "breakout_env.PixelInput), or obs_dtype='float32' with a model that does not, such as DI-engine's own."
)


def fit_model_and_buffer(cfg: EasyDict, env_class: Callable[[dict], Any]) -> None:
    """
    Overview:
        Check that the model and the replay buffer of a whole config take the observations of ``env_class``, and put \
        the sizes that ``policy.model`` leaves out into it. Wrong pairs would train on wrong numbers, some without an \
        error: DI-engine's evaluator casts uint8 to float32.
    Raises:
        - ValueError: If they do not fit; the message says what does.
    """
    policy = cfg.policy
    policy.model = EasyDict(section('policy.model', policy.get('model')))
    model_class = _model_class(policy)
    package = getattr(model_class, '__module__', '').split('.')[0]
    known = {'breakout_env': True, 'ding': False}
    scales = known.get(package, getattr(model_class, 'scales_pixels', None))
    for role in ('collector', 'evaluator'):
        env = env_class({**cfg.env, 'is_train': role == 'collector'})  # opens nothing
        box = env.observation_space
        if getattr(box, 'shape', None) is None:  # a subclass's own, such as a dict: no part of ours takes it
            return
        sizes = dict(obs_shape=list(box.shape), action_shape=getattr(env.action_space, 'n', None))
        observations = f'the {role} env returns {box.dtype} observations'
        if scales is not None and scales != (box.dtype == np.uint8):
            model = f'the model (policy.model.type: {policy.model.get("type", f"the default of {policy.type}")})'
            raise ValueError(f'{observations}, but {model} {"scales" if scales else "does not scale"} them. {PAIRS}')
        if box.dtype != np.uint8 and _takes_only_uint8(buffer := policy.other.get('replay_buffer', {})):
            raise ValueError(f'{observations}, but the replay buffer `{buffer.type}` stores uint8 only. {PAIRS}')
        for name, expected in sizes.items() if scales is not None else ():
            if policy.model.get(name) is None and package in known:  # others may lack these arguments
                policy.model[name] = expected
            found = policy.model.get(name, expected)
            if (list(found) if isinstance(found, tuple) else found) != expected:
                wrong = f'policy.model.{name} is {shown(found)}, but the {role} env has {expected}'
                raise ValueError(f'{wrong}; expected {expected}, or to leave it out')


def _model_class(policy: EasyDict) -> Any:
    """The config's model, or else the policy, whose default model is of the same package; None for unknown names."""
    import_parts('policy.model.import_names', policy.model.get('import_names'))
    registry = MODEL_REGISTRY if 'type' in policy.model else POLICY_REGISTRY
    name = policy.model.get('type', policy.type)
    return registry.get(name) if name in registry else None


def _takes_only_uint8(buffer: Mapping) -> bool:
    return getattr(dict(BUFFER_REGISTRY).get(buffer.get('type')), 'takes_only_uint8', False)


def check_default_dtype() -> None:
    """``ValueError`` unless networks are made with float32 weights, as scaled pixels are float32."""
    if (dtype := torch.get_default_dtype()) is not torch.float32:
        raise ValueError(
            f"PyTorch's default type is {dtype}, by torch.set_default_dtype in this program or its config; expected "
            'torch.float32'
        )


def check_first_batch(policy: Any, observation_space: Any) -> None:
    """
    Overview:
        Pass an observation of uint8 pixels through the network of a policy. DI-engine's evaluators cast pixels to \
        float32, which any network takes, so a network that does not scale would fail only in the first collection, \
        with PyTorch's error about types.
    Arguments:
        - policy (:obj:`Any`): Any mode of a policy that can evaluate.
        - observation_space (:obj:`Any`): The environment's; other observations than uint8 pixels are not checked.
    Raises:
        - ValueError: If the network takes such pixels in float32 only; the message names the pairs that fit. Or if \
            PyTorch's default type is not float32.
        - Exception: What the network raises for pixels of either type.
    """
    if getattr(observation_space, 'dtype', None) != np.uint8 or len(observation_space.shape) != 3:
        return
    check_default_dtype()
    obs = torch.zeros(observation_space.shape, dtype=torch.uint8)
    with torch.random.fork_rng(devices=[]):
        try:
            policy.get_attribute('forward_eval')({0: obs})
        except RuntimeError as error:
            if not _takes(policy, obs.float()):  # an error of something else, such as memory
                raise
            network = type(policy.get_attribute('model')).__name__
            raise ValueError(
                f'the network {network} does not take the observations of the environment, uint8 {tuple(obs.shape)}: '
                f'{error}. {PAIRS}'
            ) from error
    policy.get_attribute('reset_eval')([0])


def _takes(policy: Any, obs: torch.Tensor) -> bool:
    try:
        policy.get_attribute('forward_eval')({0: obs})
    except RuntimeError:
        return False
    return True


def check_first_batch_for_frames(policy: Any, policy_cfg: Mapping) -> None:
    """``check_first_batch`` for a hook, which sees only the policy's config: the buffer may mean uint8."""
    buffer, shape = policy_cfg['other'].get('replay_buffer', {}), policy_cfg['model'].get('obs_shape')
    if _takes_only_uint8(buffer) and isinstance(shape, (list, tuple)):
        check_first_batch(policy, Box(0, 255, tuple(shape), np.uint8))
