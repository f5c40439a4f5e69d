"""Rollout fragments as bytes: exact and small."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from ding.config import compile_config, read_config
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.worker import create_serial_collector

from breakout_env.cluster.fragment import EventRecorder, pack, unpack
from helpers.processes import ROOT
from helpers.replay import Play, other_keys, same


def test_real_play_is_unpacked_exactly_and_takes_less_than_a_fiftieth_of_its_pickled_transitions():
    cfg, create_cfg = read_config(str(ROOT / 'configs' / 'breakout_dqn_cpu_config.py'))
    create_cfg.policy.type += '_command'
    create_cfg.env_manager = dict(type='base')
    cfg = compile_config(cfg, seed=0, auto=True, create_cfg=create_cfg, save_cfg=False)
    env_class, env_cfgs, _ = get_vec_env_setting(cfg.env)
    manager = create_env_manager(cfg.env.manager, [partial(env_class, cfg=c) for c in env_cfgs[:4]])
    manager.seed(0)
    policy = create_policy(cfg.policy, enable_field=['collect'])
    collector = create_serial_collector(
        cfg.policy.collect.collector, env=manager, policy=policy.collect_mode, tb_logger=EventRecorder()
    )
    play = collector.collect(n_sample=256, train_iter=7, policy_kwargs=dict(eps=1.0))
    collector.close()
    packed = pack(play)
    assert same(unpack(packed), play)
    pickled = len(pickle.dumps(play, pickle.HIGHEST_PROTOCOL))
    assert len(packed) * 50 < pickled, (len(packed) / len(play), pickled / len(play))


def test_values_of_every_kind_keep_their_order_and_types():
    transitions = [{**Play(2, 1, np.random.default_rng(i)).transition(), **other_keys(i)} for i in range(7)]
    transitions[3]['prev_state'] = dict(h=torch.ones(2))  # as R2D2's, which only some steps have
    assert same(unpack(pack(transitions)), transitions)
    assert unpack(pack([])) == []


def test_a_value_that_cannot_be_packed_is_named_in_the_error():
    obs = torch.zeros(4, 3, 5, dtype=torch.uint8)
    with pytest.raises(TypeError, match=r"transition\['thing'\]"):
        pack([dict(obs=obs, thing=object())])
    with pytest.raises(ValueError, match='float32.*obs_dtype'):
        pack([dict(obs=obs.float())])
    with pytest.raises(ValueError, match=r"transition\['done'\] is of type bool; expected no such key"):
        pack([dict(obs=obs), dict(obs=obs, done=True)])
