"""
Pixels and model must fit: a model that scales takes 0..255, a model that does not takes 0..1.

The wrong pair trains without an error in places (DI-engine's evaluator casts uint8 to float32 and plays on), so it is
to be refused before anything starts. Upstream behaviour worked around (DI-engine 0.5.3): ``get_vec_env_setting`` hands
an environment class ``cfg.env`` alone, and no door leads from there to ``cfg.policy``. The pipelines do hold the whole
config in a local variable at that time, so it is looked up in the calling frames, by identity. Where DI-engine one day
passes the whole config, ``_whole_config`` can go.
"""

import inspect
from typing import Mapping, Optional

import torch
from ding.utils import MODEL_REGISTRY, POLICY_REGISTRY, import_module

SCALING_MODELS = ('pixel_dqn', 'pixel_rainbowdqn', 'pixel_c51dqn', 'pixel_qrdqn', 'pixel_vac')
PAIRS = (
    f"Choose obs_dtype='uint8' in the env with a model that scales ({', '.join(SCALING_MODELS)}), or "
    "obs_dtype='float32' with a model that does not, such as DI-engine's own."
)


def check_pixel_pairing(env_cfg: Mapping) -> None:
    """
    Overview:
        Refuse uint8 observations for DI-engine's own models and scaled ones for ours. Says nothing about models of \
        others, a model instance that was passed to the pipeline, or where the caller holds no whole config.
    Arguments:
        - env_cfg (:obj:`Mapping`): ``cfg.env``, the very object that the pipeline's config holds.
    Raises:
        - ValueError: If they do not fit; the message says which pair to choose.
    """
    cfg = _whole_config(env_cfg)
    if cfg is None:
        return
    model_cfg = cfg['policy'].get('model') or {}
    model_type = model_cfg.get('type')
    if model_type is None:
        # DI-engine then takes the policy's default model
        policy_class = POLICY_REGISTRY.get(cfg['policy'].get('type'))
        scales = False if policy_class is not None and policy_class.__module__.startswith('ding.') else None
        model_type = f'the default of policy {cfg["policy"].get("type")!r}'
    elif model_type in SCALING_MODELS:
        scales = True
    else:
        import_module(model_cfg.get('import_names', []))
        model_class = MODEL_REGISTRY.get(model_type)
        scales = False if model_class is not None and model_class.__module__.startswith('ding.') else None
    if scales is None:
        return
    for section in ('collector', 'evaluator'):
        obs_dtype = {**env_cfg, **(env_cfg.get(section) or {})}.get('obs_dtype', 'uint8')
        if (obs_dtype == 'uint8') != scales:
            pixels = 'pixels 0..255' if obs_dtype == 'uint8' else 'pixels scaled to [0, 1]'
            raise ValueError(
                f'the {section} env returns {obs_dtype} observations ({pixels}), but the model '
                f'(policy.model.type: {model_type}) {"scales" if scales else "does not scale"} them itself. {PAIRS}'
            )


def _whole_config(env_cfg: Mapping) -> Optional[Mapping]:
    """The config that holds ``env_cfg`` and is a local variable of a caller; None if a model was passed beside it."""
    frame = inspect.currentframe()
    while frame is not None:
        for value in frame.f_locals.values():
            if isinstance(value, Mapping) and value.get('env') is env_cfg and isinstance(value.get('policy'), Mapping):
                return None if isinstance(frame.f_locals.get('model'), torch.nn.Module) else value
        frame = frame.f_back
    return None
