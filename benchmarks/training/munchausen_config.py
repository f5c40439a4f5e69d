"""``configs/breakout_dqn_cpu_config.py`` with the targets of Munchausen DQN."""

from easydict import EasyDict

from configs.breakout_dqn_cpu_config import create_config, main_config  # noqa: F401  with the repository's root on PYTHONPATH

create_config.policy = EasyDict(type='munchausen_dqn', import_names=['benchmarks.training.dqn_variants'])
