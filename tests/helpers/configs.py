"""The smallest configs that DI-engine compiles."""

from typing import Any

from ding.config import compile_config
from easydict import EasyDict

NAMES = ['breakout_env']


def compiled(policy: dict, create_policy: str = 'dqn', env: Any = None, **create: Any) -> EasyDict:
    """Of one environment of each kind, with more options, and a policy; ``create`` are more sections of its config."""
    counts = dict(collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1, stop_value=1)
    main = EasyDict(exp_name='exp', env={**counts, **(env or {})}, policy=policy)
    sections = dict(env=dict(type='breakout', import_names=NAMES), env_manager=dict(type='base'))
    create_cfg = EasyDict(**sections, policy=dict(type=create_policy), **create)
    return compile_config(main, auto=True, create_cfg=create_cfg, save_cfg=False)
