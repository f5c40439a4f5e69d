"""The model is made for the environment's sizes, or the run is refused at its start."""

import click
import pytest
import torch
from ding.envs import get_vec_env_setting
from ding.policy import create_policy

from breakout_env.run.config import checked_config
from helpers.configs import NAMES, compiled
from helpers.processes import ROOT

DERIVED = [dict(frame_stack=2), dict(screen_size=42), dict(full_action_space=True), dict(collector=dict(frame_skip=3))]


def policy_of(**model):
    return dict(cuda=False, model=dict(type='pixel_dqn', import_names=NAMES, **model))


@pytest.mark.parametrize('env', DERIVED)
def test_sizes_that_the_config_leaves_out_are_the_environments(env):
    cfg = compiled(policy_of(encoder_hidden_size_list=[4, 4, 4, 8]), env=env)
    env_fn, collector_cfgs, _ = get_vec_env_setting(cfg.env)
    obs = torch.as_tensor(env_fn(collector_cfgs[0]).observation_space.sample())
    network = create_policy(cfg.policy).collect_mode.get_attribute('model')
    assert network(obs[None])['logit'].shape == (1, env_fn(collector_cfgs[0]).action_space.n)


@pytest.mark.parametrize(
    'env, message',
    [
        (dict(frame_stack=2), r'obs_shape is \[4, 84, 84\] .*the collector env has \[2, 84, 84\] .*frame_stack=2'),
        (dict(screen_size=42), r'obs_shape is .*\[4, 42, 42\]'),
        (dict(full_action_space=True), 'action_shape is 4 .*the collector env has 18 .*full_action_space=True'),
        (dict(evaluator=dict(frame_stack=3)), r'the evaluator env has \[3, 84, 84\]'),
    ],
)
def test_other_sizes_are_refused_at_the_start(env, message):
    """By DI-engine's pipelines, and by ours, where a resumed run is checked in the same way."""
    cfg = compiled(policy_of(obs_shape=[4, 84, 84], action_shape=4), env=env)
    with pytest.raises(ValueError, match=message):
        get_vec_env_setting(cfg.env)
    changes = {f'env.{name}': value for name, value in env.items()}
    named = {'policy.model.obs_shape': [4, 84, 84], 'policy.model.action_shape': 4}
    with pytest.raises(click.UsageError, match=message):
        checked_config(str(ROOT / 'configs' / 'breakout_dqn_config.py'), 0, {**named, **changes})
