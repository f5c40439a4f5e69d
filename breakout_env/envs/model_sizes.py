"""
The sizes of observations and actions follow from the environment's options, and the model must be made for them.

A config may leave ``policy.model.obs_shape`` and ``action_shape`` out. Where it has others than the environment, the
run is refused at its start, instead of ending in an error of PyTorch about the shapes of weights.
"""

from typing import Any, Dict, Mapping

from easydict import EasyDict

from ..utils.options import section, shown
from .options import BreakoutOptions
from .pixel_check import configured_model


def fit_model_sizes(env_cfg: Mapping, role: str, options: BreakoutOptions) -> None:
    """
    Overview:
        Put the sizes that ``cfg.policy.model`` leaves out into it. It does nothing where the model is passed to the \
        pipeline ready-made, or no whole config is in the callers, and adds none where the model is somebody else's. \
        Arguments as of ``fitting_obs_dtype``.
    Raises:
        - ValueError: If the config names other sizes.
    """
    found = configured_model(env_cfg, built_by=['ding', 'breakout_env'])
    if found is None:
        return
    policy, _, scales = found
    model = section('policy.model', policy.get('model'))
    sizes: Dict[str, Any] = dict(
        obs_shape=[options.frame_stack, options.screen_size, options.screen_size],
        action_shape=18 if options.full_action_space else 4,
    )
    causes = dict(
        obs_shape=f'frame_stack={options.frame_stack}, screen_size={options.screen_size}',
        action_shape=f'full_action_space={options.full_action_space}',
    )
    for name, expected in sizes.items():
        value = model.get(name)
        if value is None:
            if scales is not None:
                if not isinstance(policy.get('model'), dict):
                    policy['model'] = EasyDict()
                policy['model'][name] = expected
        elif _is_another(value, expected):
            raise ValueError(
                f'policy.model.{name} is {shown(value)}, but the {role} env has {expected} (env options '
                f'{causes[name]}); expected {expected}, or to leave policy.model.{name} out'
            )


def _is_another(value: Any, expected: Any) -> bool:
    """Whether a size is a valid one, of another environment; the model checks what is none."""
    if isinstance(expected, list):
        return isinstance(value, (list, tuple)) and len(value) == 3 and list(value) != expected
    return isinstance(value, int) and not isinstance(value, bool) and value != expected
