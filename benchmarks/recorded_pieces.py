"""Pieces of play as a collector makes them, recorded in this process for benchmarks of what is done with them."""

from functools import partial
from typing import Any, Dict, List

import torch
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import create_serial_collector
from easydict import EasyDict
from processes import SCALE_CONFIG

from breakout_env.agent.agent import load_agent
from breakout_env.distributed.recorder import Recorder
from breakout_env.run.config import config_of_node

NATURE = [32, 64, 64, 512]


def small_config() -> EasyDict:
    """The recipe for the CPU, merged with DI-engine's defaults, for one process."""
    cfg = config_of_node(str(SCALE_CONFIG), seed=0)
    cfg.env.manager.worker_num = 1
    return cfg


def record(count: int, epsilon: float, pretrained: bool, folder: str) -> List[List[Dict[str, Any]]]:
    """
    Overview:
        Play.
    Arguments:
        - count (:obj:`int`): Pieces.
        - epsilon (:obj:`float`): Share of random actions.
        - pretrained (:obj:`bool`): Whether the shipped agent plays; else a network as it is made.
        - folder (:obj:`str`): Where DI-engine's collector writes its text log, below the current one.
    Returns:
        - pieces (:obj:`List[List[Dict[str, Any]]]`): Their transitions, ``n_sample`` of the config each.
    """
    cfg = small_config()
    set_pkg_seed(0, use_cuda=False)
    env_class, collector_cfgs, _ = get_vec_env_setting(cfg.env)
    manager = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in collector_cfgs])
    manager.seed(0, dynamic_seed=True)
    policy = create_policy(cfg.policy, enable_field=['collect'])
    if pretrained:
        weights = load_agent().model.state_dict()
        policy.collect_mode.load_state_dict(dict(model=weights))
    collector = create_serial_collector(
        cfg.policy.collect.collector,
        env=manager,
        policy=policy.collect_mode,
        tb_logger=Recorder(),
        exp_name=folder,
    )
    try:
        torch.set_num_threads(1)
        return [collector.collect(policy_kwargs=dict(eps=epsilon)) for _ in range(count)]
    finally:
        collector.close()
