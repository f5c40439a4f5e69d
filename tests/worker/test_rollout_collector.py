"""Rollouts: each step is that of its game, with the right value at a time limit; and their minibatches."""

from collections import namedtuple

import numpy as np
import pytest
import torch
from ding.worker import create_serial_collector, get_serial_collector_cls
from easydict import EasyDict

from breakout_env import BreakoutEnv
from breakout_env.replay.rollout_buffer import RolloutBuffer
from breakout_env.worker.rollout_collector import RolloutCollector
from helpers.managers import KILL, advance, build, observe

ENVS, STEPS, GAMMA, SEED = 3, 40, 0.9, 5


def value_of(obs):
    return torch.as_tensor(obs).float().mean()


def policy(act, env_num=ENVS, steps=STEPS):
    """What the collector needs of a policy that acts by a function of an observation; rollouts are not changed."""

    def act_on_batch(obs):
        return dict(
            action=torch.tensor([act(one) for one in obs.numpy()]),
            value=torch.stack([value_of(one) for one in obs]),
        )

    cfg = EasyDict(type='any', traj_len_inf=False)
    sizes = dict(n_sample=steps * env_num, unroll_len=1, discount=GAMMA)
    attributes = dict(cfg=cfg, on_policy=False, device='cpu', act_on_batch=act_on_batch, **sizes)
    functions = dict(
        reset=lambda env_ids=None: None, get_train_sample=dict, get_attribute=attributes.__getitem__, forward=None
    )
    return namedtuple('collect_mode', functions)(**functions)


def collector_of(manager, *args):
    cfg = EasyDict(type='rollout', import_names=['breakout_env'])
    cfg = EasyDict(get_serial_collector_cls(cfg).default_config(), **cfg)
    return create_serial_collector(cfg, env=manager, policy=policy(*args), exp_name='run')


@pytest.mark.parametrize(
    'kind, options, hands_over',
    [
        ('breakout', dict(worker_num=2), True),
        ('breakout', dict(worker_num=1, reset_inplace=False), True),
        ('subprocess', dict(reset_inplace=True), False),
        ('base', {}, True),
    ],
)
def test_a_rollout_is_the_games_with_values_at_time_limits(kind, options, hands_over):
    """Played again by environments of the same seeds."""
    game = dict(max_episode_frames=240, noop_max=5)
    manager = build(kind, BreakoutEnv, ENVS, game, SEED, **options)
    collector = collector_of(manager, lambda screens: int(screens.sum()) % 4)
    try:
        env_ids = [env_id for half in getattr(manager, 'halves', [range(ENVS)]) for env_id in half]
        games = [BreakoutEnv(game) for _ in env_ids]
        for env_id, env in zip(env_ids, games):
            env.seed(SEED + env_id)
        obs = [env.reset() for env in games]
        truncated = lives_lost = 0
        for _ in range(4):
            rollout = collector.collect()
            for t in range(STEPS):
                for column, env in enumerate(games):
                    at = t, column
                    np.testing.assert_array_equal(rollout['obs'][at], obs[column])
                    assert rollout['value'][at] == value_of(obs[column])
                    timestep = env.step(rollout['action'][at])
                    reward, weight, obs[column] = float(timestep.reward[0]), 1.0, timestep.obs
                    if timestep.info.get('TimeLimit.truncated', False):
                        truncated += 1
                        reward, weight = (reward + GAMMA * value_of(timestep.obs), 1) if hands_over else (0, 0)
                    assert rollout['reward'][at] == pytest.approx(float(reward), abs=1e-4)
                    assert (rollout['done'][at], rollout['weight'][at]) == (timestep.done, weight)
                    if timestep.done:
                        lives_lost += 1
                        obs[column] = env.reset()
            assert rollout['value'][STEPS].tolist() == [value_of(one) for one in obs]
        assert truncated > 3 and lives_lost > truncated
        assert (collector.envstep, collector.games) == (4 * STEPS * ENVS, truncated)
    finally:
        collector.close()


def test_a_lost_worker_costs_its_environments_a_step_and_their_games():
    """The policy itself kills it, twice; all other steps are those of games of numbers."""
    acted = iter(range(10**6))

    def act(obs):
        return KILL if next(acted) in (21, 50) else int(obs.sum()) % 4

    collector = collector_of(build(env_num=5, worker_num=2), act, 5, 12)
    rollouts = [collector.collect() for _ in range(2)]
    states = [rollout['obs'].numpy().copy().view(np.uint64).reshape(12, 5, 2).tolist() for rollout in rollouts]
    lost = [(rollout['weight'] == 0).sum().item() for rollout in rollouts]
    assert sum(lost) in (4, 5, 6)  # both environments of the first worker, or three of the second, each time
    for rollout, of_rollout in zip(rollouts, states):
        for t in range(11):
            for column in range(5):
                state, ticks = of_rollout[t][column]
                if rollout['done'][t, column] or rollout['weight'][t, column] == 0:
                    assert of_rollout[t + 1][column][1] == 0
                else:
                    after = observe(advance(state, int(rollout['action'][t, column])), ticks + 1)
                    np.testing.assert_array_equal(rollout['obs'][t + 1, column], after)
    collector.close()


@pytest.mark.parametrize('options', [dict(type='subprocess'), dict(type='async_subprocess', reset_inplace=True)])
def test_a_manager_that_does_not_step_all_environments_at_once_is_refused(options):
    with pytest.raises(
        ValueError, match="env manager is '.*subprocess' with .*; the collector `rollout` expects `break"
    ):
        RolloutCollector.check_config(dict(policy=dict(collect={}), env=dict(manager=options)))


def test_minibatches_have_each_transition_once_in_a_seeded_order():
    """The collector explores in another thread."""
    orders = []
    for drawn in (0, 3):
        torch.manual_seed(0)
        buffer = RolloutBuffer()
        buffer.push(namedtuple('Samples', 'obs')(torch.arange(100)))
        torch.rand(drawn)
        orders.append(torch.cat([buffer.sample(25).obs for _ in range(4)]).tolist())
    assert orders[0] == orders[1] != list(range(100)) == sorted(orders[0])
