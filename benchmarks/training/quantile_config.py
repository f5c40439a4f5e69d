"""``configs/breakout_dqn_cpu_config.py`` with quantiles of the return instead of its mean."""

from easydict import EasyDict

from configs.breakout_dqn_cpu_config import create_config, main_config  # with the repository's root on PYTHONPATH

variants = ['benchmarks.training.dqn_variants']
create_config.policy = EasyDict(type='quantile_dqn', import_names=variants)
main_config.policy.model.update(type='pixel_quantile_dqn', head='ding', import_names=variants)
