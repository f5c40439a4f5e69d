"""The way of a rollout from the environments to the learner."""

import numpy as np
import pytest
import torch
from ding.envs import BaseEnvTimestep
from ding.worker import create_serial_collector, get_serial_collector_cls
from easydict import EasyDict

from breakout_env.replay.rollout_buffer import RolloutBuffer
from helpers.policies import ENVS, GAMMA, STEPS, parameters, ppo


def test_each_pass_over_a_rollout_has_each_transition_once():
    buffer = RolloutBuffer()
    buffer.push(dict(obs=torch.arange(12)))
    for _ in range(2):
        assert sorted(torch.cat([buffer.sample(4)['obs'] for _ in range(3)]).tolist()) == list(range(12))
    buffer.push(dict(obs=torch.arange(100, 103)))
    assert buffer.sample(4) is None and buffer.sample(3)['obs'].min() >= 100


def test_minibatches_do_not_depend_on_random_numbers_that_others_draw_meanwhile():
    """The collector explores in another thread."""
    orders = []
    for drawn in (0, 3):
        torch.manual_seed(0)
        buffer = RolloutBuffer()
        buffer.push(dict(obs=torch.arange(100)))
        torch.rand(drawn)
        orders.append(buffer.sample(100)['obs'].tolist())
    assert orders[0] == orders[1] != list(range(100))


class Games(object):
    """An env manager whose environments play what the test says: (reward, done, info) a step."""

    env_num = ENVS

    def __init__(self, answers):
        self.answers, self.steps, self.resets = answers, 0, []
        self.ready_obs = {i: self._screen(i) for i in range(ENVS)}

    def _screen(self, env_id):
        return np.full((4, 84, 84), 10 * self.steps + env_id, dtype=np.uint8)

    def launch(self):
        pass

    close = seed = launch

    def reset(self, env_ids=None):
        self.resets.append(env_ids)

    def step(self, actions):
        self.steps += 1
        self.ready_obs = {i: self._screen(i) for i in range(ENVS)}
        answers = {i: self.answers.get((self.steps, i), (0.0, False, {})) for i in actions}
        return {
            i: BaseEnvTimestep(self._screen(i), np.array([r]), done, info) for i, (r, done, info) in answers.items()
        }


@pytest.fixture
def collect(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(answers, policy=None):
        policy = policy or ppo()
        games = Games(answers)
        cfg = EasyDict(type='rollout', import_names=['breakout_env'])
        cfg = EasyDict(get_serial_collector_cls(cfg).default_config(), **cfg)
        collector = create_serial_collector(cfg, env=games, policy=policy.collect_mode, exp_name='run')
        return collector, games, policy

    return make


def test_a_rollout_has_the_same_number_of_steps_of_each_environment(collect):
    score = dict(game_return=np.array([7.0]), eval_episode_return=7.0)
    collector, _, _ = collect({(2, 1): (1.0, True, score)})
    first, second = (collector.collect(policy_kwargs=dict(eps=0.5)) for _ in range(2))
    assert first['obs'][:, 0, 0, 0].tolist() == [10 * t + i for t in range(STEPS) for i in range(ENVS)]
    assert second['obs'][0, 0, 0, 0] == 10 * STEPS, 'the second one goes on where the first one ended'
    assert collector.envstep == 2 * STEPS * ENVS
    assert (collector.games, collector.game_return_mean, collector.epsilon) == (1, 7.0, 0.5)


def test_what_a_policy_says_of_its_actions_reaches_its_learner(collect):
    collector, _, policy = collect({})
    start = parameters(policy)
    samples = collector.collect()
    logit = policy._model(samples['obs'])['logit'].detach().log_softmax(1)
    torch.testing.assert_close(samples['log_prob'], logit.gather(1, samples['action'][:, None])[:, 0])
    policy._forward_learn(samples)
    assert not torch.equal(parameters(policy), start)


def test_the_value_of_the_last_screen_follows_a_time_limit_and_nothing_follows_a_lost_life(collect):
    ends = dict(eval_episode_return=0.0)
    truncated = {**ends, 'TimeLimit.truncated': True}
    collector, _, policy = collect({(1, 0): (1.0, True, ends), (1, 1): (1.0, True, truncated)})
    target = collector.collect()['return']
    last = torch.full((4, 84, 84), 11, dtype=torch.uint8)
    value = policy._forward_collect({0: last})[0]['value']
    assert target[0] == pytest.approx(1, abs=1e-6)
    assert target[1] == pytest.approx(float(1 + GAMMA * value), abs=1e-5)


def test_an_environment_lost_in_a_rollout_is_reset_and_its_step_left_out(collect):
    collector, games, _ = collect({(3, 2): (None, None, dict(abnormal=True))})
    weight = collector.collect()['weight'].view(STEPS, ENVS)
    assert games.resets == [{2: None}]
    assert (weight == 0).nonzero().tolist() == [[2, 2]]


def test_a_rollout_that_does_not_fit_the_environments_is_refused(collect):
    with pytest.raises(ValueError, match=r'n_sample is 7; expected a multiple of env.collector_env_num \(3\)'):
        collect({})[0].collect(n_sample=7)
