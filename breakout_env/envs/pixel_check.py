"""
Pixels and model must fit: a model that scales takes 0..255, a model that does not takes 0..1.

The wrong pair trains without an error in places (DI-engine's evaluator casts uint8 to float32 and plays on), so it is
to be refused before anything starts. Upstream behaviour worked around (DI-engine 0.5.3): ``get_vec_env_setting`` hands
an environment class ``cfg.env`` alone, and no door leads from there to ``cfg.policy``. The pipelines do hold the whole
config in a local variable at that time, so it is looked up in the calling frames, by identity. Where DI-engine one day
passes the whole config, ``_whole_config`` can go.
"""

import inspect
from types import FrameType
from typing import Mapping, Optional, Tuple

import torch
from ding.utils import MODEL_REGISTRY, POLICY_REGISTRY, import_module

from ..utils.options import section
from .options import BreakoutOptions

SCALING_MODELS = ('pixel_dqn', 'pixel_rainbowdqn', 'pixel_c51dqn', 'pixel_qrdqn', 'pixel_drqn', 'pixel_vac')
PAIRS = (
    f"Choose obs_dtype='uint8' in the env with a model that scales ({', '.join(SCALING_MODELS)}), or "
    "obs_dtype='float32' with a model that does not, such as DI-engine's own."
)


def check_pixel_pairing(env_cfg: Mapping) -> None:
    """
    Overview:
        Refuse uint8 observations for DI-engine's own models and scaled ones for ours. Says nothing about models of \
        others, a model that is passed to the pipeline ready-made, or where the caller holds no whole config.
    Arguments:
        - env_cfg (:obj:`Mapping`): ``cfg.env``, the very object that the pipeline's config holds.
    Raises:
        - ValueError: If they do not fit; the message says which pair to choose.
    """
    cfg, frame = _whole_config(env_cfg)
    if cfg is None or isinstance(frame.f_locals.get('model'), torch.nn.Module):  # what DI-engine's entries call it
        return
    model_type, scales = _model_of(cfg, in_di_engine=frame.f_globals.get('__name__', '').startswith('ding.'))
    if scales is None:
        return
    for role in ('collector', 'evaluator'):
        obs_dtype = BreakoutOptions.from_config({**env_cfg, 'is_train': role == 'collector'}).obs_dtype
        if (obs_dtype == 'uint8') != scales:
            pixels = 'pixels 0..255' if obs_dtype == 'uint8' else 'pixels scaled to [0, 1]'
            raise ValueError(
                f'the {role} env returns {obs_dtype} observations ({pixels}), but the model '
                f'(policy.model.type: {model_type}) {"scales" if scales else "does not scale"} them itself. {PAIRS}'
            )


def _model_of(cfg: Mapping, in_di_engine: bool) -> Tuple[str, Optional[bool]]:
    """Which model the pipeline will build, and whether it scales pixels; None if that can not be told."""
    model_cfg = section('policy.model', cfg['policy'].get('model'))
    if 'type' in model_cfg:
        import_module(model_cfg.get('import_names', []))
        name, registry = model_cfg['type'], MODEL_REGISTRY
        shown = name
    else:
        # DI-engine's pipelines then take the policy's own default; a pipeline somebody wrote may build what it likes
        name, registry = cfg['policy'].get('type'), POLICY_REGISTRY
        shown = f'not set, so the default of policy {name!r}'
        if not in_di_engine:
            return shown, None
    if not isinstance(name, str):
        return shown, None
    if name in SCALING_MODELS:
        return shown, True
    known = registry.get(name) if name in registry else None
    return shown, False if known is not None and known.__module__.startswith('ding.') else None


def _whole_config(env_cfg: Mapping) -> Tuple[Optional[dict], Optional[FrameType]]:
    """The config that holds ``env_cfg`` and is a variable of a caller, with the caller's frame."""
    frame = inspect.currentframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            # dict's own get: DI-engine's registries are dicts whose get raises
            if isinstance(value, dict) and dict.get(value, 'env') is env_cfg:
                if isinstance(dict.get(value, 'policy'), dict):
                    return value, frame
        frame = frame.f_back
    return None, None
