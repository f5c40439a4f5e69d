"""A training that begins with the weights of a file."""

import pytest
import torch

from breakout_env.agent.agent import initial_weights, save_agent
from breakout_env.policy.initial_weights import InitialWeights
from breakout_env.policy.mirror import Mirror
from breakout_env.utils.options import ConfigError
from helpers.agents import config_of
from helpers.policies import SMALL_SIZES, part, policy_on, ppo, rollout

SCALE = dict(count=7.0, mean=3.0, variance=4.0)


def trained_ppo(**learn):
    """After some updates, with another network than a new one has."""
    policy = ppo(**learn)
    for _ in range(3):
        policy.learn_mode.forward(policy.collect_mode.get_train_sample(rollout()))
    return policy


def acting(policy):
    return policy.collect_mode.state_dict()['model']


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize('kind', ['dqn', 'lean_dqn'])
def test_dqn_begins_with_the_weights_in_both_of_its_networks(kind):
    weights = policy_on('cpu', kind, seed=1).learn_mode.state_dict()['model']
    policy = policy_on('cpu', kind, seed=0)
    InitialWeights('file', weights, None).load(policy.learn_mode)
    state = policy.learn_mode.state_dict()
    assert same(state['model'], weights) and same(state['target_model'], weights)
    assert not state['optimizer']['state']


def test_ppo_begins_with_the_averaged_weights_and_scale_of_a_checkpoint(tmp_path):
    trained = trained_ppo(ema_decay=0.5, normalize_returns=True)
    state = trained.learn_mode.state_dict()
    torch.save(dict(state, last_iter=3, last_step=9), tmp_path / 'checkpoint')
    policy = ppo(ema_decay=0.9, normalize_returns=True)
    initial_weights(tmp_path / 'checkpoint').load(policy.learn_mode)
    begun = policy.learn_mode.state_dict()
    assert all(same(begun[name], state['ema_model']) for name in ('model', 'ema_model'))
    assert same(acting(policy), acting(trained)) and begun['return_scale'] == state['return_scale']
    assert begun['return_scale']['count'] == 3 and not begun['optimizer']['state']


@pytest.mark.parametrize('scale', [None, SCALE])
def test_an_agent_file_may_have_the_scale_of_its_critic(tmp_path, scale):
    weights = trained_ppo().learn_mode.state_dict()['model']
    half = {name: value.half() for name, value in weights.items()}
    config = config_of('pixel_actor_critic', sizes=SMALL_SIZES)
    save_agent(tmp_path / 'agent', half, {'return_scale': scale} if scale else {}, config)
    policy = ppo(normalize_returns=True)
    initial_weights(tmp_path / 'agent').load(policy.learn_mode)
    state = policy.learn_mode.state_dict()
    assert same(state['model'], {name: value.float() for name, value in half.items()})
    assert state['return_scale'] == (scale or dict(count=0.0, mean=0.0, variance=1.0))


@pytest.mark.parametrize('scale', [dict(SCALE, variance=-1.0), dict(mean=3.0), 3, dict(SCALE, mean=float('nan'))])
def test_a_scale_that_is_none_is_an_error(tmp_path, scale):
    torch.save(dict(trained_ppo().learn_mode.state_dict(), return_scale=scale), tmp_path / 'checkpoint')
    with pytest.raises(ValueError, match='checkpoint: `return_scale` is .*; expected None or numbers `count`'):
        initial_weights(tmp_path / 'checkpoint')


def test_weights_of_another_network_are_an_error_that_names_both():
    other = policy_on('cpu', 'lean_dqn').learn_mode.state_dict()['model']
    message = "^the/file has other weights than the network of the config: 'critic.bias' is missing; expected .1,.$"
    with pytest.raises(ConfigError, match=message):
        InitialWeights('the/file', other, None).load(ppo().learn_mode)


def test_a_mirror_takes_equivariant_weights_only():
    weights = trained_ppo().learn_mode.state_dict()['model']
    with pytest.raises(ConfigError, match='file does not fit the config: .* without the policy option `learn.mirror`'):
        InitialWeights('file', weights, None).load(ppo(mirror=True).learn_mode)
    policy = ppo(mirror=True)
    InitialWeights('file', trained_ppo(mirror=True).learn_mode.state_dict()['model'], None).load(policy.learn_mode)
    Mirror(part(policy, 'model')).check()
