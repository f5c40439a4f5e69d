"""Does the model take what the environment returns? Pixels are 0..255 (uint8) for a model that scales them, or scaled
to [0, 1] (float32) for one that does not. A wrong pair trains on wrong numbers, sometimes without an error: DI-engine's
evaluator casts uint8 to float32.
"""

import numpy as np
import torch
from ding.envs import BaseEnv
from ding.utils import BUFFER_REGISTRY, MODEL_REGISTRY, POLICY_REGISTRY
from easydict import EasyDict

from ..utils.imports import import_parts
from ..utils.options import as_dict, describe

PIXEL_FORMAT_HINT = (
    "Choose obs_dtype='uint8' in the env with a model that scales (pixel_dqn and the other pixel models, or one with "
    "breakout_env.PixelInput), or obs_dtype='float32' with a model that does not, such as DI-engine's own."
)
# Packages whose models all have the arguments `obs_shape` and `action_shape`, and whether these models scale pixels.
_SCALES = {'breakout_env': True, 'ding': False}


def fill_in_sizes(policy: EasyDict, env: BaseEnv) -> None:
    """Put the sizes that ``policy.model`` leaves out into it, if it is a model of DI-engine or this package."""
    policy.model = EasyDict(as_dict('policy.model', policy.get('model')))
    if _package(_model_class(policy)) in _SCALES:
        for name, size in _sizes(env).items():
            if policy.model.get(name) is None:
                policy.model[name] = size


def check_pixels(policy: EasyDict, role: str, env: BaseEnv) -> None:
    """Check that the model and the replay buffer of a policy's config take the observations of an environment, which
    has this role; a ValueError says what does.
    """
    box, model_class = env.observation_space, _model_class(policy)
    if not _sizes(env):  # a subclass may return a dict, which no part of this package takes
        return
    observations = f'the {role} env returns {box.dtype} observations'
    scales = _SCALES.get(_package(model_class), getattr(model_class, 'scales_pixels', None))
    if scales is not None and scales != (box.dtype == np.uint8):
        model = f'the model (policy.model.type: {policy.model.get("type", f"the default of {policy.type}")})'
        verb = 'scales' if scales else 'does not scale'
        raise ValueError(f'{observations}, but {model} {verb} them. {PIXEL_FORMAT_HINT}')
    buffer = policy.other.get('replay_buffer', {}).get('type')
    if box.dtype != np.uint8 and getattr(dict(BUFFER_REGISTRY).get(buffer), 'takes_only_uint8', False):
        raise ValueError(f'{observations}, but the replay buffer `{buffer}` stores uint8 only. {PIXEL_FORMAT_HINT}')
    for name, expected in _sizes(env).items() if scales is not None else ():
        found = policy.model.get(name, expected)
        if (list(found) if isinstance(found, tuple) else found) != expected:
            wrong = f'policy.model.{name} is {describe(found)}, but the {role} env has {expected}'
            raise ValueError(f'{wrong}; expected {expected}, or to leave it out')


def _model_class(policy: EasyDict) -> type | None:
    """The config's model, or else the policy, whose default model is of the same package; None for unknown names."""
    import_parts('policy.model.import_names', policy.model.get('import_names'))
    registry = MODEL_REGISTRY if 'type' in policy.model else POLICY_REGISTRY
    name = policy.model.get('type', policy.type)
    return registry.get(name) if name in registry else None


def _package(model_class: type | None) -> str:
    return getattr(model_class, '__module__', '').split('.')[0]


def _sizes(env: BaseEnv) -> dict[str, object]:
    """The sizes of ``policy.model`` that suit an environment; none if its observations are not arrays."""
    shape = getattr(env.observation_space, 'shape', None)
    return {} if shape is None else dict(obs_shape=list(shape), action_shape=getattr(env.action_space, 'n', None))


def check_default_dtype() -> None:
    """``ValueError`` unless networks are made with float32 weights, as scaled pixels are float32."""
    if (dtype := torch.get_default_dtype()) is not torch.float32:
        found = f"PyTorch's default type is {dtype}, by torch.set_default_dtype in this program or its config"
        raise ValueError(f'{found}; expected torch.float32')
