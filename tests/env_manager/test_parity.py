"""The env manager gives what DI-engine's own managers give: the same transitions, states, seeds and attributes."""

import copy
import functools
import itertools

import gym
import numpy as np
import pytest
import treetensor.numpy as tnp
from ding.envs import BaseEnvTimestep
from ding.envs.env_manager.base_env_manager import EnvState

from breakout_env import BreakoutEnv, GroupEnvManager, GroupEnvManagerV2
from breakout_env.env_manager.errors import EnvNotReady, NoStepPending, StepPending
from helpers.managers import GameEnv, build, frozen, launched
from helpers.resources import children


class LooseEnv(GameEnv):
    """Types that are allowed and not what the spaces say: they must arrive as they were sent."""

    def pack_end(self, reward, done, info):
        reward = [float(reward), np.float64(reward), np.array([reward, 1]), np.array([reward], np.float32)][reward % 4]
        return reward, np.bool_(done) if self.ticks % 2 else done, dict(info, nested=[{'a': (1, None)}])


class DictEnv(GameEnv):
    observation_space = gym.spaces.Dict(
        dict(agent=GameEnv.observation_space, mask=gym.spaces.Box(0, 1, (3,), np.float32))
    )

    def pack(self, obs):
        return dict(agent=obs, mask=np.full(3, self.ticks % 2, np.float32))


def course(manager, rounds, seed, forced_resets=True):
    """What a manager shows in some random play: partial steps, in any order, and resets in mid-episode."""
    rng, seen = np.random.default_rng(seed), []
    for _ in range(rounds):
        if forced_resets and (rng.random() < 0.1 or not manager.ready_obs):
            ids = rng.permutation(manager.env_num)[: rng.integers(1, manager.env_num + 1)].tolist()
            manager.reset({i: None if rng.random() < 0.5 else {} for i in ids})
        if manager.done:
            break
        ready = manager.ready_obs
        seen += [ready, manager.ready_obs_id, [int(state) for state in manager._env_states.values()]]
        ids = list(ready)
        if rng.random() < 0.5:
            ids = rng.permutation(ids)[: rng.integers(1, len(ids) + 1)].tolist()
        timesteps = manager.step({i: rng.integers(4, size=1) for i in ids})
        assert list(timesteps) == ids and all(type(timestep) is BaseEnvTimestep for timestep in timesteps.values())
        seen.append(timesteps)
    # only now: what was returned is the caller's, and later steps must leave it as it was
    return [frozen(one) for one in seen]


@functools.cache
def stock_course(kind, env_class, env_num, rounds, seed, forced_resets=True, **options):
    """``course`` under one of DI-engine's own managers."""
    if kind == 'subprocess':
        options.update(reset_inplace=True, shared_memory=env_class is not LooseEnv)
    with launched(kind, env_class, env_num, seed=seed, **options) as manager:
        return course(manager, rounds, seed, forced_resets)


@pytest.mark.parametrize('env_class', [GameEnv, LooseEnv, DictEnv, BreakoutEnv])
@pytest.mark.parametrize('stock', ['subprocess', 'base'])
def test_transitions_equal_those_of_the_stock_managers(stock, env_class):
    options = dict(worker_num=2, reset_inplace=stock == 'subprocess')
    with launched('breakout', env_class, 5, seed=100, **options) as manager:
        assert course(manager, 80, 100) == stock_course(stock, env_class, 5, 80, 100)


@pytest.mark.parametrize('context', ['spawn', 'inline'])
def test_transitions_are_the_same_in_any_context(context):
    with launched(env_num=2, worker_num=1, reset_inplace=False, context=context) as manager:
        assert course(manager, 80, 0) == stock_course('base', GameEnv, 2, 80, 0)


@pytest.mark.parametrize('env_class', [GameEnv, DictEnv, BreakoutEnv])
def test_the_v2_manager_returns_what_the_stock_v2_manager_returns(env_class):
    courses = []
    for kind in ('subprocess_v2', 'breakout_v2'):
        with launched(kind, env_class, 3, reset_inplace=True) as manager:
            rng, seen = np.random.default_rng(0), []
            for i in range(60):
                seen += [frozen(manager.ready_obs), manager.ready_obs_id]
                actions = rng.integers(4, size=(3, 1))
                # a list, an array or a tree of arrays
                timesteps = manager.step([list(actions), actions, tnp.array(actions)][i % 3])
                assert [timestep.env_id.item() for timestep in timesteps] == [0, 1, 2]
                seen.append(frozen(timesteps))
            courses.append(seen)
    assert courses[0] == courses[1] and type(manager) is GroupEnvManagerV2


@pytest.mark.parametrize('stock', ['subprocess', 'base'])
def test_the_manager_is_done_after_episode_num_episodes(stock):
    options = dict(episode_num=3)
    with launched(env_num=5, worker_num=2, reset_inplace=stock != 'base', **options) as manager:
        stock_one = stock_course(stock, GameEnv, 5, 1000, 0, False, **options)
        assert course(manager, 1000, 0, forced_resets=False) == stock_one
        assert manager.done and all(manager.env_state_done(i) for i in range(5)) and manager.ready_obs_id == []


def test_without_auto_reset_an_ended_episode_waits_for_the_caller():
    with launched(env_num=5, worker_num=2, reset_inplace=False, auto_reset=False) as manager:
        assert course(manager, 80, 0) == stock_course('base', GameEnv, 5, 80, 0, auto_reset=False)
        while manager.ready_obs:
            manager.step({i: 0 for i in manager.ready_obs})
        assert set(manager._env_states.values()) == {EnvState.NEED_RESET}


@pytest.mark.parametrize('seed', [3, [9, 8, 7, 6], {0: 5, 2: 1}, None], ids=str)
@pytest.mark.parametrize('dynamic_seed', [None, False])
def test_environments_get_the_same_seeds_as_under_the_stock_manager(seed, dynamic_seed):
    given = []
    for kind in ('base', 'breakout'):
        manager, its_seed = build(kind, seed=None), copy.copy(seed)
        if seed is not None:
            manager.seed(its_seed, dynamic_seed)
            assert kind == 'base' or its_seed == seed, "the caller's list is not changed"
        manager.launch()
        manager.reset()  # seeds are used once
        given.append(manager.seeds)
        manager.seed({1: 77})
        manager.reset({1: None})
        given.append(manager.seeds)
        manager.close()
    assert given[:2] == given[2:]


def test_attributes_and_methods_are_those_of_the_stock_manager():
    with launched(worker_num=2) as manager:
        manager.step({i: 0 for i in range(4)})
        assert manager.ticks == [1, 1, 1, 1] and isinstance(manager.env_ref, GameEnv) and manager.env_num == 4
        assert manager.observation_space == GameEnv.observation_space
        assert manager.action_space is manager.env_ref.action_space and manager.reward_space == GameEnv.reward_space
        assert set(manager.random_action()) == {0, 1, 2, 3}
        with pytest.raises(Exception, match='(?s)environment 2 raised AttributeError.*enable_save_figure'):
            manager.enable_save_figure(2, 'figures')  # the worker lives on
        assert manager.reward_shaping(2, [{'a': 1}]) == [{'a': 1, 'shaped_in': manager.pid[2], 'seed': 2}]
        with pytest.raises(Exception, match='pickle'):
            _ = manager.handle


def test_replays_are_recorded_and_pictures_taken(tmp_path):
    manager = build(env_class=BreakoutEnv, env_num=2, env_cfg=dict(is_train=False, noop_max=1))
    manager.enable_save_replay(str(tmp_path))
    manager.launch()
    manager.step({0: 0, 1: 0})
    assert {picture.shape for picture in manager.ready_imgs.values()} == {(210, 160, 3)}
    manager.close()
    assert len(list(tmp_path.glob('*-unfinished.mp4'))) == 2


@pytest.mark.parametrize('env_num, worker_num, groups', [(5, 2, [2, 3]), (2, 8, [1, 1])])
def test_neighbouring_environments_share_a_process(env_num, worker_num, groups):
    with launched(env_num=env_num, worker_num=worker_num) as manager:
        sizes = [len(list(group)) for _, group in itertools.groupby(manager.pid)]
        assert sorted(sizes) == groups and len(set(manager.pid)) == len(groups)
        assert set(manager.pid) == {child.pid for child in children()}


@pytest.mark.parametrize('env_fn', [[], None, [None], 2])
def test_a_manager_needs_functions_that_make_environments(env_fn):
    with pytest.raises(ValueError, match='env_fn is .*; expected a list with a function for each environment'):
        GroupEnvManager(env_fn)


def test_calls_about_environments_that_are_not_there_or_not_ready_are_refused():
    with launched(episode_num=1) as manager:
        while not manager.env_state_done(0):
            manager.step({0: 0})
        with pytest.raises(ValueError, match='found no environments .4.; expected 0 to 3'):
            manager.reset({4: None})
        with pytest.raises(EnvNotReady, match="expects environments in state RUN; found {0: 'DONE', 4: 'unknown'}"):
            manager.step({0: 0, 1: 0, 4: 0})
        assert manager.ready_obs_id == [1, 2, 3] and manager.ticks[1] == 0


def test_a_step_is_sent_once_and_received_once():
    with launched(worker_num=2) as manager:
        with pytest.raises(NoStepPending, match='call send first'):
            manager.recv()
        manager.send(np.zeros(2, np.int64), [0, 1])
        with pytest.raises(StepPending, match=r'a step of environments \[1\] is under way; call recv first'):
            manager.send(np.zeros(3, np.int64), [1, 2, 3])
        with pytest.raises(ValueError, match='3 actions for 2 environments'):
            manager.send(np.zeros(3, np.int64), [2, 3])
        assert manager.recv().env_ids == [0, 1] and manager.ticks == [1, 1, 0, 0]


@pytest.mark.parametrize('options', [dict(auto_reset=False), dict(episode_num=3)])
def test_a_manager_that_takes_no_batches_says_so(options):
    with launched(**options) as manager:
        assert not manager.takes_batches
        with pytest.raises(ValueError, match='takes no batches'):
            manager.send(np.zeros(4, np.int64), range(4))
