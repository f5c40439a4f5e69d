"""
Pixels and model must fit: a model that scales takes 0..255, a model that does not takes 0..1.

Where the config names no ``obs_dtype``, it follows from the model: a config written for ``dizoo.atari`` names neither,
as dizoo's environment scales. A wrong combination trains without an error in places (DI-engine's evaluator casts uint8
to float32 and continues), so it is refused before anything starts. Upstream behaviour worked around (DI-engine 0.5.3):
``get_vec_env_setting`` passes ``cfg.env`` alone to an environment class, which cannot reach ``cfg.policy`` from there.
The pipelines do hold the whole config in a local variable at that time, so ``_whole_config`` finds it in the calling
frames, by identity. It can be removed once DI-engine passes the whole config.
"""

import inspect
import logging
from types import FrameType
from typing import Collection, Mapping, Optional, Tuple

import torch
from ding.utils import MODEL_REGISTRY, POLICY_REGISTRY, import_module

from ..utils.options import section

logger = logging.getLogger(__name__)
SCALING_MODELS = (
    *('pixel_dqn', 'pixel_actor_critic', 'pixel_rainbowdqn', 'pixel_c51dqn', 'pixel_qrdqn', 'pixel_drqn'),
    'pixel_vac',
)
_PIXELS = {'uint8': 'pixels 0..255', 'float32': 'pixels scaled to [0, 1]'}
PAIRS = (
    f"Choose obs_dtype='uint8' in the env with a model that scales ({', '.join(SCALING_MODELS)}), or "
    "obs_dtype='float32' with a model that does not, such as DI-engine's own."
)


def fitting_obs_dtype(env_cfg: Mapping, role: str, obs_dtype: str, is_named: bool) -> str:
    """
    Overview:
        The observations that fit the model of the config that ``env_cfg`` is a section of. Where the model is unknown \
        (somebody else's, passed to the pipeline ready-made, or no whole config in the callers) any fit.
    Arguments:
        - env_cfg (:obj:`Mapping`): ``cfg.env``, the very object that the pipeline's config holds.
        - role (:obj:`str`): ``collector`` or ``evaluator``, for the error message.
        - is_named (:obj:`bool`): Whether the config names ``obs_dtype``; otherwise another one is returned where it \
            does not fit.
    Raises:
        - ValueError: If a named one does not fit; the message says which combinations do.
    """
    found = configured_model(env_cfg, built_by=['ding'])
    if found is None:
        return obs_dtype
    _, model_type, scales = found
    fitting = obs_dtype if scales is None else 'uint8' if scales else 'float32'
    if is_named and fitting != obs_dtype:
        raise ValueError(
            f'the {role} env returns {obs_dtype} observations ({_PIXELS[obs_dtype]}), but the model '
            f'(policy.model.type: {model_type}) {"scales" if scales else "does not scale"} them itself. {PAIRS}'
        )
    if fitting == 'float32' and not is_named:
        # a warning: it takes four times the memory, and DI-engine's programs show no lower level
        logger.warning(
            'the %s env returns float32 observations (%s), as the config names no obs_dtype, and %s',
            role,
            _PIXELS[fitting],
            'has an env_id' if scales is None else f'its model (policy.model.type: {model_type}) does not scale',
        )
    return fitting


def configured_model(env_cfg: Mapping, built_by: Collection[str]) -> Optional[Tuple[dict, str, Optional[bool]]]:
    """
    The policy's config beside ``env_cfg``, its model's name, and whether that scales pixels; None where it is unknown.
    Pipelines of the packages ``built_by`` build the policy's default model where none is named. None of these where no
    whole config is in the callers, or the model is passed to the pipeline ready-made.
    """
    found = _whole_config(env_cfg)
    if found is None or isinstance(found[1].f_locals.get('model'), torch.nn.Module):  # its name in DI-engine's entries
        return None
    policy, package = found[0]['policy'], found[1].f_globals.get('__name__', '').split('.')[0]
    model_cfg = section('policy.model', policy.get('model'))
    if 'type' in model_cfg:
        import_module(model_cfg.get('import_names', []))
        name, registry = model_cfg['type'], MODEL_REGISTRY
        shown = name
    else:
        name, registry = policy.get('type'), POLICY_REGISTRY
        shown = f'not set, so the default of policy {name!r}'
        if package not in built_by:  # somebody else's pipeline may build any model
            return policy, shown, None
    if not isinstance(name, str):
        return policy, shown, None
    known = registry.get(name) if name in registry else None
    package = '' if known is None else known.__module__.split('.')[0]
    if name in SCALING_MODELS or package == 'breakout_env':  # our policies take our models by default
        return policy, shown, True
    return policy, shown, False if package == 'ding' else None


def _whole_config(env_cfg: Mapping) -> Optional[Tuple[dict, FrameType]]:
    """The config that holds ``env_cfg`` and is a variable of a caller, with the caller's frame."""
    frame = inspect.currentframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            # dict's own get: DI-engine's registries are dicts whose get raises
            if isinstance(value, dict) and dict.get(value, 'env') is env_cfg:
                if isinstance(dict.get(value, 'policy'), dict):
                    return value, frame
        frame = frame.f_back
    return None
