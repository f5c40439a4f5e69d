"""The env manager of grouped environments: the stock managers' transitions; nothing lost or left when things fail."""

import collections
import contextlib
import copy
import ctypes
import functools
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import gym
import numpy as np
import psutil
import pytest
import torch
import treetensor.numpy as tnp
from ding.envs import BaseEnv, BaseEnvTimestep, create_env_manager, get_env_manager_cls
from ding.envs.env_manager.base_env_manager import EnvState
from ding.worker import (
    InteractionSerialEvaluator,
    SampleSerialCollector,
    create_serial_collector,
    create_serial_evaluator,
)
from easydict import EasyDict
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from test_managers import check_leaves_nothing

from breakout_env import BreakoutEnv, GroupEnvManager, GroupEnvManagerV2, env_manager
from helpers.processes import wait_until
from helpers.resources import children

CLOSE_WITHIN_S = 15
# Actions of GameEnv besides the 4 that play: what can go wrong in a step.
RAISE, RAISE_AWKWARD, RAISE_LOCAL, KILL, STOP, HANG, EXIT, SEGFAULT, SLEEP, ABNORMAL = range(10, 20)


class PlantedError(Exception):
    """An error that a user's environment may raise."""


class AwkwardError(Exception):
    """One that can't be made from a message alone."""

    def __init__(self, first, second):
        super().__init__(f'{first} {second}')


class GameEnv(BaseEnv):
    """
    A game of numbers, fast and fixed by seed and actions. An observation is the state of a generator and the steps
    so far, so that each transition can be checked by itself. Goes wrong as ``action`` and ``cfg.reset_faults`` say.
    """

    observation_space = gym.spaces.Box(0, 255, (2, 8), np.uint8)
    action_space = gym.spaces.Discrete(4)
    reward_space = gym.spaces.Box(0, 9, (1,), np.float32)
    last_obs, ticks, bonus = None, 0, 0  # a manager hands out what an env that was never reset has, too

    def __init__(self, cfg):
        self.cfg = cfg
        self.seeds = []
        self._rng = np.random.default_rng()
        self._dynamic_seed = True
        self.note('init')

    @property
    def pid(self):
        return os.getpid()

    @property
    def handle(self):
        return threading.Lock()  # can not be sent

    def note(self, event):
        if 'events' in self.cfg:
            with open(self.cfg['events'], 'a') as f:
                f.write(f'{event} {os.getpid()}\n')

    def seed(self, seed, dynamic_seed=True):
        self.seeds = [*self.seeds, (seed, dynamic_seed)]
        self._rng, self._dynamic_seed = np.random.default_rng(seed), dynamic_seed

    def reset(self, bonus=0):
        self._fail_reset()
        if not self._dynamic_seed:
            self._rng = np.random.default_rng(self.seeds[-1][0])
        self.state, self.ticks, self.bonus, self.points = int(self._rng.integers(2**63)), 0, bonus, 0
        self.length = 3 + self.state % 9
        self.last_obs = observe(self.state, self.ticks)
        return self.pack(self.last_obs)

    def step(self, action):
        action = int(np.asarray(action).item())
        if action >= RAISE:
            abnormal = self.go_wrong(action)
            if abnormal is not None:
                return abnormal
        self.state, self.ticks = advance(self.state, action), self.ticks + 1
        self.last_obs = observe(self.state, self.ticks)
        reward, done = self.state % 3 + self.bonus, self.ticks >= self.length
        self.points += reward
        info = dict(ticks=self.ticks)
        if done:
            info['eval_episode_return'] = np.float32(self.points)
        return BaseEnvTimestep(self.pack(self.last_obs), *self.pack_end(reward, done, info))

    def pack(self, obs):
        return obs

    def pack_end(self, reward, done, info):
        return np.array([reward], np.float32), done, info

    def go_wrong(self, action):
        if action == RAISE:
            raise PlantedError('planted')
        if action == RAISE_AWKWARD:
            raise AwkwardError('planted', 2)
        if action == RAISE_LOCAL:

            class LocalError(Exception):
                pass

            raise LocalError('planted')
        if action in (KILL, STOP):
            os.kill(os.getpid(), signal.SIGKILL if action == KILL else signal.SIGSTOP)
        if action == HANG:  # inside of C: no Python code runs, no signal handler neither
            collections.deque(itertools.repeat(0), maxlen=0)
        if action == EXIT:
            os._exit(3)
        if action == SEGFAULT:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # without pytest's report on it
            ctypes.string_at(0)
        if action == SLEEP:
            time.sleep(1)
        if action == ABNORMAL:
            return BaseEnvTimestep(None, None, True, {'abnormal': True})

    def _fail_reset(self):
        """What the first line of the file says, which is then taken out."""
        if 'reset_faults' not in self.cfg:
            return
        path = Path(self.cfg['reset_faults'])
        fault, _, rest = path.read_text().partition('\n')
        path.write_text(rest)
        if fault:
            self.note(fault)
        if fault == 'raise':
            raise PlantedError('planted')
        if fault == 'kill':
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == 'hang':
            time.sleep(60)

    def reward_shaping(self, transitions):
        return [dict(transition, shaped_in=os.getpid(), seed=self.seeds[-1][0]) for transition in transitions]

    def close(self):
        self.note('close')
        if self.cfg.get('endless_close'):
            time.sleep(60)
        if self.cfg.get('failing_close'):
            raise PlantedError('planted')

    def __repr__(self):
        return 'GameEnv()'


def observe(state, ticks):
    return np.array([state, ticks], np.uint64).view(np.uint8).reshape(2, 8)


def advance(state, action):
    return (state * 6364136223846793005 + 1442695040888963407 + action) % 2**63


class LooseEnv(GameEnv):
    """Types that are allowed and not what the spaces say: they come out as they went in."""

    def pack_end(self, reward, done, info):
        # one kind at one time, another one at another
        reward = [float(reward), np.float64(reward), np.array([reward, 1]), np.array([reward], np.float32)][reward % 4]
        return reward, np.bool_(done) if self.ticks % 2 else done, dict(info, nested=[{'a': (1, None)}])


class DictEnv(GameEnv):
    observation_space = gym.spaces.Dict(
        dict(agent=GameEnv.observation_space, mask=gym.spaces.Box(0, 1, (3,), np.float32))
    )

    def pack(self, obs):
        return dict(agent=obs, mask=np.full(3, self.ticks % 2, np.float32))


class WordEnv(GameEnv):
    """Observations that are no arrays at all."""

    observation_space = gym.spaces.Discrete(9)

    def pack(self, obs):
        return ['word', int(obs.sum())]


def build(kind='breakout', env_class=GameEnv, env_num=4, env_cfg=None, seed=0, **cfg):
    """A manager of so many environments, all with one config or each with its own."""
    env_cfgs = env_cfg if isinstance(env_cfg, list) else [env_cfg or {}] * env_num
    cfg = EasyDict({'type': kind, **cfg})
    cfg = EasyDict({**get_env_manager_cls(cfg).default_config(), **cfg})
    manager = create_env_manager(cfg, [partial(env_class, cfg=one) for one in env_cfgs])
    if seed is not None:
        manager.seed(seed)
    return manager


@contextlib.contextmanager
def launched(*args, **kwargs):
    manager = build(*args, **kwargs)
    try:
        manager.launch()
        yield manager
    finally:
        manager.close()


@pytest.fixture(scope='module', autouse=True)
def memory_for_reuse():
    """multiprocessing keeps some shared memory for the next manager: what is there before is not counted as left."""
    with launched():
        pass


def frozen(value):
    """A value with its types, to compare and to keep."""
    if isinstance(value, tnp.ndarray):
        value = value.json()
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return 'dict', [(key, frozen(value[key])) for key in sorted(value)]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [frozen(one) for one in value]
    return type(value).__name__, value


def course(manager, rounds, seed, forced_resets=True):
    """What a manager shows in some random play: partial steps, in any order, and resets in mid-episode."""
    rng, seen = np.random.default_rng(seed), []
    for _ in range(rounds):
        if forced_resets and rng.random() < 0.1:
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
    # only now: what was handed out is the caller's, and later steps leave it as it was
    return [frozen(one) for one in seen]


@functools.lru_cache(maxsize=None)
def stock_course(kind, env_class, env_num, rounds, seed, forced_resets=True, **options):
    if kind == 'subprocess':
        options.update(reset_inplace=True, shared_memory=env_class not in (LooseEnv, WordEnv))
    with launched(kind, env_class, env_num, seed=seed, **options) as manager:
        return course(manager, rounds, seed, forced_resets)


# ---------------------------------------------------------------- the same transitions


@pytest.mark.parametrize('worker_num', [1, 2, 3, 5])
@pytest.mark.parametrize('env_class', [GameEnv, LooseEnv, DictEnv, WordEnv])
@pytest.mark.parametrize('stock', ['subprocess', 'base'])
def test_the_transitions_are_the_stock_managers(stock, env_class, worker_num):
    for seed in (0, 100):
        options = dict(worker_num=worker_num, reset_inplace=stock == 'subprocess')
        with launched('breakout', env_class, 5, seed=seed, **options) as manager:
            assert course(manager, 80, seed) == stock_course(stock, env_class, 5, 80, seed)


@pytest.mark.parametrize('options', [dict(shared_memory=False), dict(context='spawn')])
def test_the_transitions_do_not_depend_on_how_they_travel(options):
    with launched(env_num=5, worker_num=2, reset_inplace=False, **options) as manager:
        assert course(manager, 80, 0) == stock_course('base', GameEnv, 5, 80, 0)


@pytest.mark.parametrize('stock', ['subprocess', 'base'])
def test_breakout_plays_the_same_games(stock):
    for seed in (0, 7):
        with launched('breakout', BreakoutEnv, 3, seed=seed, worker_num=2, reset_inplace=stock != 'base') as manager:
            ours = course(manager, 120, seed)
        assert ours == stock_course(stock, BreakoutEnv, 3, 120, seed)


@pytest.mark.parametrize('env_class, rounds', [(GameEnv, 60), (DictEnv, 60), (BreakoutEnv, 100)])
def test_v2_gives_what_the_stock_v2_gives(env_class, rounds):
    courses = []
    for kind in ('subprocess_v2', 'breakout_v2'):
        with launched(kind, env_class, 3, reset_inplace=True) as manager:
            rng, seen = np.random.default_rng(0), []
            for i in range(rounds):
                seen += [frozen(manager.ready_obs), manager.ready_obs_id]
                actions = rng.integers(4, size=(3, 1))
                # a list, an array or a tree of arrays
                timesteps = manager.step([list(actions), actions, tnp.array(actions)][i % 3])
                assert [timestep.env_id.item() for timestep in timesteps] == [0, 1, 2]
                seen.append(frozen(timesteps))
            courses.append(seen)
    assert courses[0] == courses[1]
    assert type(manager) is GroupEnvManagerV2


@pytest.mark.parametrize('stock', ['subprocess', 'base'])
def test_the_manager_is_done_after_as_many_episodes_as_asked_for(stock):
    options = dict(episode_num=3)
    with launched(env_num=5, worker_num=2, reset_inplace=stock != 'base', **options) as manager:
        assert course(manager, 1000, 0, forced_resets=False) == stock_course(
            stock, GameEnv, 5, 1000, 0, False, **options
        )
        assert manager.done and all(manager.env_state_done(i) for i in range(5))
        assert manager.ready_obs_id == []


@pytest.mark.parametrize('stock', ['subprocess', 'base'])
def test_an_environment_that_is_done_may_be_reset_to_play_on(stock):
    games = []
    for kind in (stock, 'breakout'):
        options = {} if kind == 'base' else dict(reset_inplace=stock != 'base')
        with launched(kind, env_num=2, episode_num=2, **options) as manager:
            while not manager.env_state_done(1):
                manager.step({1: 0})
            manager.reset({1: None})
            assert manager.ready_obs_id == [0, 1]
            games.append([frozen(manager.ready_obs), *(frozen(manager.step({1: 0})) for _ in range(2))])
    assert games[0] == games[1]


def test_without_auto_reset_an_ended_episode_waits_for_the_caller():
    courses = []
    for kind, options in (('base', {}), ('breakout', dict(worker_num=2, reset_inplace=False))):
        with launched(kind, auto_reset=False, **options) as manager:
            rng, seen = np.random.default_rng(0), []
            for i in range(60):
                ids = manager.ready_obs_id
                seen += [frozen(manager.ready_obs), ids, dict(manager._env_states)]
                if ids:
                    seen.append(frozen(manager.step({i: rng.integers(4) for i in ids})))
                waiting = [i for i, state in manager._env_states.items() if state == EnvState.NEED_RESET]
                assert set(waiting).isdisjoint(manager.ready_obs)
                if len(waiting) > 1:
                    manager.reset({i: None for i in waiting})
            courses.append(seen)
    assert courses[0] == courses[1]


@pytest.mark.parametrize('seed', [3, [9, 8, 7, 6], {0: 5, 2: 1}, None])
@pytest.mark.parametrize('dynamic_seed', [None, True, False])
def test_seeds_reach_the_environments_as_the_stock_managers_send_them(seed, dynamic_seed):
    given = []
    for kind in ('base', 'breakout'):
        manager = build(kind, seed=None)
        if seed is not None:
            manager.seed(copy.copy(seed), dynamic_seed)  # DI-engine's seed() empties the caller's list
        manager.launch()
        manager.reset()  # seeds are used once
        given.append(manager.seeds)
        manager.seed({1: 77})
        manager.reset({1: None})
        given.append(manager.seeds)
        manager.close()
    assert given[:2] == given[2:]


def test_parameters_of_a_reset_hold_until_others_are_given():
    rewards = []
    for kind in ('base', 'breakout'):
        options = {} if kind == 'base' else dict(reset_inplace=False)
        manager = build(kind, **options)
        manager.launch({i: dict(bonus=i) for i in range(4)})
        for i in range(60):
            if i == 30:
                manager.reset({1: dict(bonus=4), 2: None})
            timesteps = manager.step({i: 0 for i in range(4)})
            rewards.append((kind, [timesteps[i].reward.item() for i in range(4)], manager.bonus))
        manager.close()
    half = len(rewards) // 2
    assert [row[1:] for row in rewards[:half]] == [row[1:] for row in rewards[half:]]


# ---------------------------------------------------------------- groups of environments, and what belongs to each


@pytest.mark.parametrize('env_num, worker_num, groups', [(5, 1, [5]), (5, 2, [2, 3]), (5, 5, [1] * 5), (2, 8, [1, 1])])
def test_environments_next_to_each_other_share_a_process(env_num, worker_num, groups):
    with launched(env_num=env_num, worker_num=worker_num) as manager:
        sizes = [len(list(group)) for _, group in itertools.groupby(manager.pid)]
        assert sorted(sizes) == groups and len(set(manager.pid)) == len(groups)
        assert set(manager.pid) == {child.pid for child in children()}


def test_there_is_one_worker_for_each_core_that_may_be_used():
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        with launched() as manager:
            assert len(set(manager.pid)) == 1
    finally:
        os.sched_setaffinity(0, cores)
    with launched() as manager:
        assert len(set(manager.pid)) == min(len(cores), 4)


@pytest.mark.parametrize('worker_num', [0, -1, 1.5, 'two', True])
def test_a_wrong_worker_num_is_named(worker_num):
    with pytest.raises(ValueError, match='worker_num'):
        with launched(worker_num=worker_num):
            pass


def test_a_config_that_leaves_keys_out_gets_their_defaults():
    manager = GroupEnvManager([partial(GameEnv, {})], EasyDict(GroupEnvManager.default_config(), wait_num=2))
    manager.launch()
    assert manager.ready_obs_id == [0]
    manager.close()


def test_attributes_and_methods_are_reached_as_through_the_stock_manager():
    with launched(worker_num=2) as manager:
        manager.step({i: 0 for i in range(4)})
        assert manager.ticks == [1, 1, 1, 1]
        assert manager.seeds == [[(i, True)] for i in range(4)] or manager.seeds[0][0][0] == 0
        with pytest.raises(AttributeError, match='no_such_thing'):
            _ = manager.no_such_thing
        assert not hasattr(manager, 'no_such_thing')
        with pytest.raises(RuntimeError, match='pack'):
            manager.pack(None)
        assert isinstance(manager.env_ref, GameEnv) and manager.env_num == 4
        assert manager.observation_space == GameEnv.observation_space
        assert manager.action_space is manager.env_ref.action_space and manager.reward_space == GameEnv.reward_space
        assert set(manager.random_action()) == {0, 1, 2, 3}
        assert manager.reward_shaping(2, [{'a': 1}]) == [{'a': 1, 'shaped_in': manager.pid[2], 'seed': 2}]
        with pytest.raises(AssertionError):
            manager.launch()
        with pytest.raises(AssertionError):
            manager.seed([1, 2])
    with pytest.raises(AssertionError):
        _ = manager.ticks
    with pytest.raises(AssertionError):
        manager.step({0: 0})
    assert manager.closed


def test_an_attribute_that_can_not_be_sent_is_an_error_and_no_hang():
    with launched() as manager:
        with pytest.raises(Exception, match='pickle'):
            _ = manager.handle


def test_a_step_of_an_environment_that_is_not_ready_is_refused():
    with launched(episode_num=1) as manager:
        while not manager.env_state_done(0):
            manager.step({0: 0})
        with pytest.raises(AssertionError):
            manager.step({0: 0, 1: 0})
        assert manager.ticks[1] == 0


# ---------------------------------------------------------------- errors of an environment


@pytest.mark.parametrize('action, error', [(RAISE, PlantedError), (RAISE_AWKWARD, Exception), (RAISE_LOCAL, Exception)])
def test_an_error_in_a_step_is_raised_with_the_environments_traceback(action, error, same_footprint):
    manager = build(worker_num=2)
    manager.launch()
    with pytest.raises(error, match='(?s)in go_wrong.*planted'):
        manager.step({0: 0, 1: action, 2: 0, 3: action})
    assert manager.closed and wait_until(lambda: not children())


def test_an_error_in_a_constructor_is_raised_by_launch(same_footprint):
    made = []

    def env_fn(i):
        made.append(i)
        if i and len(made) > 1:  # not the one that is made for its spaces
            raise PlantedError(f'planted {i}')
        return GameEnv({})

    manager = GroupEnvManager([partial(env_fn, i) for i in range(4)], EasyDict(GroupEnvManager.default_config()))
    with pytest.raises(Exception, match='planted'):
        manager.launch()
    manager.close()
    assert wait_until(lambda: not children())


def test_a_launch_that_can_not_start_all_its_workers_leaves_none(monkeypatch):
    manager, forks, fork = build(worker_num=3), [], os.fork

    def fail_the_third_time():
        forks.append(None)
        if len(forks) == 3:
            raise BlockingIOError('Resource temporarily unavailable')
        return fork()

    with monkeypatch.context() as patch:
        patch.setattr(os, 'fork', fail_the_third_time)
        with pytest.raises(BlockingIOError):
            manager.launch()
    manager.close()
    assert manager.closed and not children()
    manager.launch()
    manager.close()


@pytest.mark.parametrize('retry_type', ['reset', 'renew'])
@pytest.mark.parametrize('when', ['launch', 'reset', 'end of an episode'])
def test_a_reset_that_fails_is_tried_again(when, retry_type, tmp_path):
    events, faults = tmp_path / 'events', tmp_path / 'faults'
    cfgs = [{}, dict(events=str(events), reset_faults=str(faults)), {}, {}]
    faults.write_text('raise\nraise\n' if when == 'launch' else '')
    options = dict(max_retry=3, retry_type=retry_type, retry_waiting_time=0.01, worker_num=2, reset_inplace=False)
    with launched(env_cfg=cfgs, **options) as manager:
        pids = manager.pid
        if when != 'launch':
            faults.write_text('raise\nraise\n')
        if when == 'reset':
            manager.reset({1: None})
        while when == 'end of an episode' and faults.read_text():
            manager.step({i: 0 for i in range(4)})
        assert faults.read_text() == '' and manager.ready_obs_id == [0, 1, 2, 3]
        assert_consistent(manager)
        assert manager.pid == pids
    order = [line.split()[0] for line in events.read_text().splitlines()]
    assert order.count('raise') == 2 and order.count('init') == (3 if retry_type == 'renew' else 1)


def test_a_reset_that_fails_for_good_closes(tmp_path, same_footprint):
    faults = tmp_path / 'faults'
    faults.write_text('raise\n' * 9)
    manager = build(env_cfg=[{}, {}, {}, dict(reset_faults=str(faults))], max_retry=2, retry_waiting_time=0.01)
    with pytest.raises(RuntimeError, match='(?s)Env 3 reset has exceeded max retries.*planted'):
        manager.launch()
    assert manager.closed and faults.read_text().count('raise') == 7
    assert wait_until(lambda: not children())


@pytest.mark.parametrize('fault', ['kill', 'hang'])
def test_a_worker_lost_in_a_reset_is_replaced(fault, tmp_path, same_footprint):
    faults = tmp_path / 'faults'
    faults.write_text('')
    cfgs = [{}, {}, {}, dict(reset_faults=str(faults))]
    with launched(env_cfg=cfgs, worker_num=2, max_retry=3, reset_timeout=1, retry_waiting_time=0.01) as manager:
        pids = manager.pid
        for _ in range(2):
            manager.step({i: 0 for i in range(4)})
        faults.write_text(f'{fault}\n')
        manager.reset({3: None})
        assert 3 in manager.ready_obs and manager.pid[3] != pids[3] and manager.pid[0] == pids[0]
        assert manager.ticks[0] == 2  # the other worker's games go on
        lost = set(range(4)) - set(manager.ready_obs)  # the game of its neighbour is lost, and that is told
        assert lost <= {2}
        manager.reset({i: None for i in lost})
        assert_consistent(manager)
        assert manager.step({i: 0 for i in range(4)})[0].info['ticks'] == 3
        assert_consistent(manager)


def test_a_worker_that_is_killed_in_a_reset_is_no_failure_of_its_environment_but_twice_is(tmp_path, same_footprint):
    faults = tmp_path / 'faults'
    faults.write_text('kill\n')
    with launched(env_cfg=dict(reset_faults=str(faults)), env_num=1, worker_num=1) as manager:  # max_retry is 1
        assert faults.read_text() == '' and manager.ready_obs_id == [0]
        assert_consistent(manager)
        faults.write_text('kill\n' * 9)
        with pytest.raises(RuntimeError, match=r'exceeded max retries\(1\), .* has ended \(signal 9\)'):
            manager.reset({0: None})
        assert manager.closed and faults.read_text().count('kill') == 7
    assert wait_until(lambda: not children())


def test_a_reset_that_does_not_end_is_an_error_in_time(tmp_path, same_footprint):
    faults = tmp_path / 'faults'
    faults.write_text('hang\n' * 9)
    manager = build(env_cfg=dict(reset_faults=str(faults)), env_num=2, reset_timeout=0.5, retry_waiting_time=0.01)
    start = time.monotonic()
    with pytest.raises(RuntimeError, match='reset has exceeded max retries'):
        manager.launch()
    assert manager.closed and time.monotonic() - start < CLOSE_WITHIN_S
    assert wait_until(lambda: not children())


def test_a_timestep_that_the_environment_calls_abnormal_is_handed_on():
    with launched(worker_num=2) as manager:
        pids = manager.pid
        timesteps = manager.step({0: ABNORMAL, 1: 0, 2: 0, 3: 0})
        assert timesteps[0].info['abnormal'] and manager._env_states[0] == EnvState.ERROR
        assert manager.ready_obs_id == [1, 2, 3] and list(manager.ready_obs) == [1, 2, 3]
        manager.reset({0: None})
        assert manager.ready_obs_id == [0, 1, 2, 3] and manager.pid == pids and manager.ticks == [0, 1, 1, 1]
        assert_consistent(manager)


# ---------------------------------------------------------------- workers that are lost


def assert_consistent(manager):
    """What is ready to be answered is where the environments really are."""
    last = manager.last_obs
    for i, obs in manager.ready_obs.items():
        np.testing.assert_array_equal(obs, last[i])


def end_process(pid, number=signal.SIGKILL):
    os.kill(pid, number)
    assert wait_until(lambda: psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED))


def lose(how, manager, actions, env_id):
    """One worker less, before the step or in it."""
    if how in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP):
        end_process(manager.pid[env_id], how)
        return actions
    return {**actions, env_id: how}


def play(manager, rounds, lose_in_round=None, how=None, actions_seed=0, asks=True):
    """All ready environments for some rounds; what each of them showed. The lost ones are asked back, or not."""
    table = np.random.default_rng(actions_seed).integers(4, size=(rounds, manager.env_num))
    shown, lost = {i: [] for i in range(manager.env_num)}, []
    for i in range(rounds):
        for env_id, obs in manager.ready_obs.items():
            shown[env_id].append(frozen(obs))
        actions = {env_id: table[i, env_id] for env_id in manager.ready_obs_id}
        if i == lose_in_round:
            group = [j for j, pid in enumerate(manager.pid) if pid == manager.pid[-1]]
            timesteps = manager.step(lose(how, manager, actions, manager.env_num - 1))
            lost = [j for j, timestep in timesteps.items() if timestep.info.get('abnormal')]
            assert lost == group, 'a whole group is lost, and nobody else'
            for j in lost:
                assert timesteps[j][:3] == (None, None, None) and manager._env_states[j] == EnvState.ERROR
        else:
            timesteps = manager.step(actions)
        assert list(timesteps) == list(actions)
        for env_id, timestep in timesteps.items():
            shown[env_id].append(frozen(timestep) if env_id not in lost else None)
        if lost and i == lose_in_round:
            with pytest.raises(AssertionError):
                manager.step({lost[0]: 0})
            for env_id in lost if asks else ():  # as DI-engine's collectors do; its evaluators just go on
                manager.reset({env_id: None})
    return shown, lost


@pytest.mark.parametrize(
    'how', [signal.SIGKILL, signal.SIGTERM, KILL, EXIT, SEGFAULT, signal.SIGSTOP, STOP, HANG], ids=str
)
@pytest.mark.parametrize('asks', [True, False], ids=['asked back', 'back unasked'])
def test_a_lost_worker_costs_its_own_environments_alone(how, asks, same_footprint):
    options = dict(env_num=5, worker_num=2, reset_inplace=asks)
    with launched(**options) as manager:
        expected, _ = play(manager, 30)
    with launched(**options, step_timeout=0.2) as manager:
        pids = manager.pid
        shown, lost = play(manager, 30, lose_in_round=9, how=how, asks=asks)
        assert 1 < len(lost) < 5
        new_pids = manager.pid
        assert all((pids[i] == new_pids[i]) == (i not in lost) for i in range(5))
        assert len({new_pids[i] for i in lost}) == 1
        assert not psutil.pid_exists(pids[-1])
        assert_consistent(manager)
        assert manager.ready_obs_id == list(range(5))
    for i in range(5):
        if i in lost:
            assert shown[i][:19] == expected[i][:19]
        else:
            assert shown[i] == expected[i]


def test_without_auto_reset_each_lost_environment_comes_back_when_it_is_asked_for():
    with launched(worker_num=1, env_num=3, auto_reset=False, reset_inplace=False) as manager:
        for _ in range(2):
            manager.step({i: 0 for i in range(3)})
        end_process(manager.pid[0])
        timesteps = manager.step({2: 0, 0: 0})
        assert all(timesteps[i].info['abnormal'] for i in (0, 2))
        # the third one was not stepped and is lost as well
        assert manager.ready_obs_id == [] and dict(manager.ready_obs) == {} and not manager.done
        manager.reset({2: None})
        assert manager.ready_obs_id == [2]
        manager.step({2: 1})
        manager.reset({0: None, 1: None})
        assert manager.ready_obs_id == [0, 1, 2] and manager.ticks == [0, 0, 1]
        assert_consistent(manager)


@pytest.mark.parametrize('when', ['before the reset', 'in the reset'])
def test_a_worker_lost_between_steps_is_told_to_those_who_did_not_reset(when, tmp_path):
    faults = tmp_path / 'faults'
    faults.write_text('')
    cfgs = [dict(reset_faults=str(faults)), {}, {}, {}]
    with launched(worker_num=2, env_num=4, env_cfg=cfgs, max_retry=2, retry_waiting_time=0.0) as manager:
        if when == 'in the reset':
            faults.write_text('kill\n')
        else:
            end_process(manager.pid[0])
        manager.reset({0: None})  # this is when the manager finds out; 0 and 1 shared the process
        assert manager.ready_obs_id == [0, 1, 2, 3]
        timesteps = manager.step(dict.fromkeys(range(4), 0))
        assert [i for i, timestep in timesteps.items() if timestep.info.get('abnormal')] == [1]
        assert not any(t.info.get('abnormal') for t in manager.step(dict.fromkeys(range(4), 0)).values())
        assert_consistent(manager)


def test_a_step_that_is_interrupted_leaves_its_games_to_be_reset(monkeypatch):
    with launched(worker_num=1, env_num=2) as manager:
        with monkeypatch.context() as patch:
            patch.setattr(type(manager._workers[0]), 'receive', raise_keyboard_interrupt)
            with pytest.raises(KeyboardInterrupt):
                manager.step({0: 0, 1: 0})
        with pytest.raises(AssertionError, match='NEED_RESET'):  # it would go on where nobody has looked
            manager.step({0: 0, 1: 0})
        manager.reset()
        manager.step({0: 0, 1: 0})
        assert_consistent(manager)


def raise_keyboard_interrupt(*args, **kwargs):
    raise KeyboardInterrupt


def test_a_renewed_environment_is_seeded_as_the_one_before(tmp_path):
    faults = tmp_path / 'faults'
    options = dict(retry_type='renew', max_retry=2, retry_waiting_time=0.0, env_num=2, worker_num=1)
    firsts = []
    for _ in range(2):
        faults.write_text('raise\n')
        with launched(**options, env_cfg=dict(reset_faults=str(faults))) as manager:
            assert all(manager.seeds), 'each has a seed'
            firsts.append(frozen(manager.ready_obs))
    assert firsts[0] == firsts[1]


def test_a_restarted_environment_plays_new_games_and_the_same_ones_in_each_run():
    firsts = []
    for _ in range(2):
        with launched(worker_num=1, env_num=3) as manager:
            games = [[frozen(obs) for obs in manager.ready_obs.values()]]
            for _ in range(2):
                manager.step({i: 0 for i in range(3)})
                end_process(manager.pid[0])
                manager.step({i: 0 for i in range(3)})
                manager.reset()
                games.append([frozen(obs) for obs in manager.ready_obs.values()])
            firsts.append(games)
    assert firsts[0] == firsts[1]
    old = []
    for seed in range(3):
        env = GameEnv({})
        env.seed(seed)
        old += [frozen(env.reset()) for _ in range(200)]
    new = [obs for games in firsts[0][1:] for obs in games]
    assert len(set(map(str, new))) == 6 and not any(obs in old for obs in new)


def test_where_each_game_is_to_be_alike_a_restarted_one_is_too():
    manager = build(worker_num=1, env_num=2, seed=None)
    manager.seed(4, dynamic_seed=False)
    manager.launch()
    before = frozen(manager.ready_obs)
    end_process(manager.pid[0])
    manager.step({0: 0})
    manager.reset()
    assert frozen(manager.ready_obs) == before
    manager.close()


def test_a_seed_given_before_the_restart_is_the_one_in_force():
    with launched(worker_num=1, env_num=2) as manager:
        end_process(manager.pid[0])
        manager.step({0: 0})
        manager.seed([50, 60])
        manager.reset()
        assert [seeds[-1][0] for seeds in manager.seeds] == [50, 60]


def test_a_worker_killed_while_nobody_steps_is_brought_back_by_reset():
    with launched(worker_num=2) as manager:
        end_process(manager.pid[0])
        manager.reset()  # as an evaluation begins
        assert manager.ready_obs_id == [0, 1, 2, 3]
        assert_consistent(manager)


def test_attributes_of_a_lost_group_are_none_until_it_is_reset():
    with launched(worker_num=2) as manager:
        end_process(manager.pid[0])
        with pytest.raises(RuntimeError, match='signal 9'):  # nobody has noticed yet, and nobody is told by this
            _ = manager.ticks
        manager.step({0: 0, 3: 0})
        assert manager.ticks == [None, None, 0, 1]
        with pytest.raises(RuntimeError):
            manager.reward_shaping(0, [])
        manager.reset()
        assert manager.ready_obs_id == [0, 1, 2, 3]


@pytest.mark.parametrize('reset_inplace', [True, False])
def test_v2_ends_a_lost_episode_and_begins_another(reset_inplace):
    with launched('breakout_v2', worker_num=2, reset_inplace=reset_inplace) as manager:
        for _ in range(2):
            before = manager.ready_obs
            manager.step(np.zeros((4, 1), np.int64))
        before = manager.ready_obs
        end_process(manager.pid[3])
        timesteps = manager.step(np.zeros((4, 1), np.int64))
        assert [timestep.env_id.item() for timestep in timesteps] == [0, 1, 2, 3]
        for i in (2, 3):
            assert timesteps[i].done.item() and timesteps[i].info.abnormal.item()
            assert timesteps[i].reward.shape == timesteps[0].reward.shape and timesteps[i].reward.item() == 0
            np.testing.assert_array_equal(timesteps[i].obs, before[i])
        assert not hasattr(timesteps[0].info, 'abnormal')
        assert manager.ready_obs_id == [0, 1, 2, 3] and manager.ticks[2:] == [0, 0]
        np.testing.assert_array_equal(manager.ready_obs, np.stack(manager.last_obs))


def test_videos_are_recorded_by_old_and_restarted_workers(tmp_path):
    av = pytest.importorskip('av')
    folders = [str(tmp_path / str(i)) for i in range(3)]
    manager = build(env_class=BreakoutEnv, env_num=3, worker_num=2, env_cfg=dict(is_train=False, noop_max=1))
    manager.enable_save_replay(folders)
    manager.launch()
    for i in range(20):
        if i == 5:
            end_process(max(psutil.Process().children(), key=psutil.Process.create_time).pid)  # no encoder
        timesteps = manager.step({i: np.array([0]) for i in manager.ready_obs_id})
        for env_id, timestep in timesteps.items():
            if timestep.info.get('abnormal'):
                manager.reset({env_id: None})
    manager.close()

    def frames_in(folder):
        try:
            return [count_frames(av, video) for video in sorted(Path(folder).iterdir())]
        except (OSError, av.error.InvalidDataError):  # the encoder outlives the killed worker and is still at it
            return []

    assert wait_until(lambda: all(frames_in(folder) for folder in folders))
    kept, also_kept, lost = map(frames_in, folders)
    assert kept == also_kept == [21]  # what reset left, and 20 steps
    assert sorted(lost) == [6, 15]  # 5 steps and a new game, 14 steps and a new game


def count_frames(av, video):
    with av.open(str(video)) as container:
        return len(list(container.decode(video=0)))


# ---------------------------------------------------------------- under DI-engine's collector and evaluator


class KillingPolicy(object):
    """What collector and evaluator ask of a policy; random play, and in some calls the death of a worker."""

    def __init__(self, manager, kill_in_calls=()):
        self.manager, self.kill_in_calls, self.calls = manager, kill_in_calls, 0
        self.rng = np.random.default_rng(0)
        self.resets = []

    def get_attribute(self, name):
        cfg = EasyDict(type='random_command', traj_len_inf=False)
        return dict(cfg=cfg, n_sample=60, unroll_len=1, on_policy=False)[name]

    def forward(self, obs, **kwargs):
        self.calls += 1
        assert self.calls < 3000, 'the evaluation does not end'
        assert len(obs), 'nothing to decide on'
        if self.calls in self.kill_in_calls:
            end_process(self.manager.pid[-1])
        return {i: dict(action=torch.from_numpy(self.rng.integers(4, size=1))) for i in obs}

    def reset(self, env_ids=None):
        self.resets += env_ids or []

    def process_transition(self, obs, output, timestep):
        return dict(obs=obs, next_obs=timestep.obs, action=output['action'], reward=timestep.reward, done=timestep.done)

    def get_train_sample(self, transitions):
        return list(transitions)


@pytest.fixture
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize('worker_num', [1, 2])
def test_a_collector_goes_on_when_a_worker_is_killed(worker_num, in_tmp_path):
    manager = build(worker_num=worker_num)
    policy = KillingPolicy(manager, kill_in_calls=(5, 31))
    cfg = EasyDict(SampleSerialCollector.default_config(), type='sample')
    collector = create_serial_collector(cfg, env=manager, policy=policy)
    with contextlib.closing(collector):
        transitions = list(itertools.chain(*(collector.collect() for _ in range(6))))
    assert len(transitions) == 360 and set(policy.resets) >= {3}
    for transition in transitions:
        state, ticks = transition['obs'].numpy().copy().view(np.uint64).ravel().tolist()
        next_obs = transition['next_obs'].numpy()
        if transition['done']:  # the next episode's first, in place
            assert next_obs.copy().view(np.uint64).ravel()[1] == 0
        else:
            np.testing.assert_array_equal(next_obs, observe(advance(state, transition['action'].item()), ticks + 1))


@pytest.mark.parametrize('worker_num', [1, 2])
def test_an_evaluation_comes_to_its_end_when_a_worker_is_killed(worker_num, in_tmp_path):
    manager = build(worker_num=worker_num, seed=None)
    manager.seed(0, dynamic_seed=False)
    policy = KillingPolicy(manager, kill_in_calls=(5,))
    cfg = EasyDict(InteractionSerialEvaluator.default_config(), type='interaction', n_episode=8, stop_value=1e6)
    evaluator = create_serial_evaluator(cfg, env=manager, policy=policy)
    with contextlib.closing(evaluator):
        for _ in range(2):
            _, info = evaluator.eval()
            assert len(info['eval_episode_return']) == 8


# ---------------------------------------------------------------- close, at any moment


def interrupt(call, after_s=0.3):
    """A Ctrl-C in the middle of a call."""

    def on_signal(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, on_signal)
    timer = threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def half_launch(manager, faults):
    faults.write_text('hang\n')
    interrupt(manager.launch)


def fail_a_reset(manager, faults):
    faults.write_text('raise\n')
    with pytest.raises(RuntimeError):
        manager.launch()


def launch_and(then):
    def go(manager, faults):
        manager.launch()
        manager.step({i: 0 for i in range(4)})
        then(manager)

    return go


def fail_a_step(manager):
    with pytest.raises(PlantedError):
        manager.step({0: RAISE, 3: 0})


MOMENTS = {
    'never launched': lambda manager, faults: None,
    'half launched': half_launch,
    'after a reset that failed': fail_a_reset,
    'in mid-episode': launch_and(lambda manager: None),
    'after an error in a step': launch_and(fail_a_step),
    'after a step that was interrupted': launch_and(lambda manager: interrupt(lambda: manager.step({0: HANG, 3: 0}))),
    'after a step of a second that was interrupted': launch_and(
        lambda manager: interrupt(lambda: manager.step({0: SLEEP, 3: 0}))
    ),
    'after an attribute that was interrupted': launch_and(
        lambda manager: (os.kill(manager.pid[0], signal.SIGSTOP), interrupt(lambda: manager.ticks))
    ),
    'with a worker killed': launch_and(lambda manager: os.kill(manager.pid[0], signal.SIGKILL)),
    'with a lost worker': launch_and(lambda manager: manager.step({0: KILL, 3: 0})),
    'with a worker stopped': launch_and(lambda manager: os.kill(manager.pid[0], signal.SIGSTOP)),
    'with all workers killed': launch_and(lambda manager: [child.kill() for child in children()]),
}


@pytest.mark.parametrize('moment', MOMENTS)
def test_close_gives_everything_back(moment, tmp_path, monkeypatch):
    faults = tmp_path / 'faults'
    monkeypatch.setattr(env_manager.manager, 'CLOSING_S', 1.0)  # not to wait long for those that do not answer

    def scenario():
        faults.write_text('')
        manager = build(env_cfg=[{}, {}, {}, dict(reset_faults=str(faults))], worker_num=2, retry_waiting_time=0.01)
        MOMENTS[moment](manager, faults)
        for _ in range(2):
            start = time.monotonic()
            manager.close()
            assert manager.closed and time.monotonic() - start < CLOSE_WITHIN_S
        assert not children()
        faults.write_text('')
        manager.launch()
        manager.step({i: 0 for i in range(4)})
        assert_consistent(manager)
        manager.close()

    check_leaves_nothing(scenario)


def test_close_closes_the_environments_also_beside_another_manager(tmp_path):
    events = [tmp_path / 'first', tmp_path / 'second']
    first, second = (build(env_cfg=dict(events=str(path)), worker_num=2) for path in events)
    first.launch()
    second.launch()  # its workers are forked later and have the first one's descriptors
    for manager, path in ((first, events[0]), (second, events[1])):
        start = time.monotonic()
        manager.close()
        assert time.monotonic() - start < 4
        assert path.read_text().count('close') == 4
    assert not children()


@pytest.mark.parametrize('env_cfg', [dict(endless_close=True), dict(failing_close=True)])
def test_an_environments_own_close_can_not_hold_up_the_managers(env_cfg, same_footprint):
    with launched(env_cfg=env_cfg, worker_num=2) as manager:
        start = time.monotonic()
        manager.close()
        assert time.monotonic() - start < CLOSE_WITHIN_S
    assert not children()


def test_a_manager_that_is_dropped_takes_its_workers_along(same_footprint):
    manager = build(worker_num=2)
    manager.launch()
    assert len(children()) == 2
    del manager
    assert wait_until(lambda: not children())


def test_play_goes_on_after_a_step_that_was_interrupted():
    with launched(worker_num=2) as manager:
        interrupt(lambda: manager.step({0: SLEEP, 1: 0, 3: 0}))
        manager.reset()
        assert manager.ready_obs_id == [0, 1, 2, 3] and manager.ticks == [0] * 4
        assert_consistent(manager)
        timesteps = manager.step({i: 0 for i in range(4)})
        assert all(timesteps[i].info['ticks'] == 1 for i in range(4))
        assert_consistent(manager)


def forked(main):
    """A copy of this process that runs a function and ends; its id, and what the function writes."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read_end)
            os.setsid()  # a process group of its own, which Ctrl-C is sent to
            os.dup2(write_end, 2)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with os.fdopen(write_end, 'w', buffering=1) as output:
                main(output)
        finally:
            os._exit(0)
    os.close(write_end)
    return pid, os.fdopen(read_end)


def is_over(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize('busy', [None, SLEEP])
def test_workers_end_when_their_manager_is_killed(busy):
    def main(output):
        manager = build(worker_num=2)
        manager.launch()
        print(*sorted(set(manager.pid)), file=output)
        if busy is None:
            time.sleep(60)
        while True:
            manager.step({0: busy, 1: 0})  # the other worker has nothing to do

    memory = len(os.listdir('/dev/shm'))
    pid, output = forked(main)
    workers = [int(word) for word in output.readline().split()]
    assert len(workers) == 2
    time.sleep(0.3)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        assert wait_until(lambda: all(is_over(worker) for worker in workers), timeout_s=6)
    finally:
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
    output.close()
    assert len(os.listdir('/dev/shm')) <= memory


def test_ctrl_c_reaches_the_managers_process_alone():
    def main(output):
        manager = build(worker_num=2)
        manager.launch()
        print('playing', file=output)
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            timesteps = manager.step({i: 0 for i in range(4)})
            print('ticks', *(timesteps[i].info.get('ticks') for i in range(4)), file=output)
            manager.close()
            print('children', len(psutil.Process().children()), file=output)

    pid, output = forked(main)
    assert output.readline() == 'playing\n'
    time.sleep(0.2)
    os.killpg(pid, signal.SIGINT)
    assert output.read() == 'ticks 1 1 1 1\nchildren 0\n'
    os.waitpid(pid, 0)
    output.close()


PROGRAM = """
from functools import partial
from breakout_env import BreakoutEnv, GroupEnvManager

if __name__ == '__main__':
    manager = GroupEnvManager([partial(BreakoutEnv, {{}})] * 2, dict(worker_num=2, context={context!r}))
    manager.launch()
    print(*(worker.pid for worker in manager._workers))
"""


@pytest.mark.parametrize('context', ['fork', 'spawn'])
def test_a_program_that_forgets_to_close_ends_without_a_word(context, tmp_path):
    script = tmp_path / 'program.py'
    script.write_text(PROGRAM.format(context=context))
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    pids = [int(word) for word in result.stdout.split()]
    assert result.returncode == 0 and len(pids) == 2, result.stderr
    assert 'Traceback' not in result.stderr and 'Exception' not in result.stderr and 'leaked' not in result.stderr
    assert wait_until(lambda: all(is_over(pid) for pid in pids))


# ---------------------------------------------------------------- any sequence of all that


class AnySequence(RuleBasedStateMachine):
    """Steps, resets, kills, closes and launches in any order, beside a copy of each environment in this process."""

    ENVS = 4

    @initialize(reset_inplace=st.booleans(), worker_num=st.integers(1, 4), episode_num=st.sampled_from([2, np.inf]))
    def start(self, reset_inplace, worker_num, episode_num):
        self.reset_inplace, self.episode_num = reset_inplace, episode_num
        self.manager = build(
            reset_inplace=reset_inplace,
            worker_num=worker_num,
            episode_num=episode_num,
            max_retry=2,
            retry_waiting_time=0.0,
        )
        self.launch()

    @precondition(lambda self: self.manager.closed)
    @rule()
    def launch(self):
        self.manager.seed(0)
        self.manager.launch()
        self.copies = [self.copy_of(seed) for seed in range(self.ENVS)]
        self.ready = {env_id: copy.reset() for env_id, copy in enumerate(self.copies)}
        self.episodes = [0] * self.ENVS
        self.pids, self.killed = self.manager.pid, set()

    def copy_of(self, seed):
        env = GameEnv({})
        env.seed(seed)
        return env

    def lose(self, env_ids):
        """Those environments are lost, and all that share their processes."""
        pids = {self.pids[i] for i in env_ids}
        for i in range(self.ENVS):
            if self.pids[i] in pids:
                self.copies[i] = None
                self.ready.pop(i, None)

    @precondition(lambda self: not self.manager.closed and self.ready)
    @rule(data=st.data(), rounds=st.integers(1, 8))
    def step(self, data, rounds):
        for _ in range(rounds):
            if self.ready:
                self.step_once(data)

    def step_once(self, data):
        ids = data.draw(st.lists(st.sampled_from(sorted(self.ready)), min_size=1, unique=True))
        actions = {i: data.draw(st.integers(0, 3)) for i in ids}
        timesteps = self.manager.step(actions)
        lost = self.killed.intersection(ids)
        self.lose(lost)
        assert list(timesteps)[: len(ids)] == ids
        for i, timestep in timesteps.items():
            if self.copies[i] is None:
                assert timestep.info['abnormal'] and self.manager._env_states[i] == EnvState.ERROR
                continue
            expected = self.copies[i].step(actions[i])
            self.ready[i] = expected.obs
            if expected.done:
                self.episodes[i] += 1
                is_over = self.episodes[i] >= self.episode_num
                if self.reset_inplace or not is_over:
                    self.ready[i] = self.copies[i].reset()
                if self.reset_inplace:
                    expected = expected._replace(obs=self.ready[i])
                if is_over:
                    del self.ready[i]
            assert frozen(timestep) == frozen(expected)
        if lost:  # as DI-engine's collectors do
            self.reset([i for i in timesteps if self.copies[i] is None], False)

    @precondition(lambda self: not self.manager.closed)
    @rule(ids=st.lists(st.integers(0, 3), min_size=1, unique=True), all_of_them=st.booleans())
    def reset(self, ids, all_of_them):
        pids = {self.pids[i] for i in self.killed.intersection(ids)}  # whoever shared a process is to be reset, too
        ids = [i for i in range(self.ENVS) if all_of_them or i in ids or self.pids[i] in pids]
        self.lose(self.killed.intersection(ids))
        self.manager.reset(None if all_of_them else dict.fromkeys(ids))
        for i in ids:
            (about,) = self.manager.reward_shaping(i, [{}])  # where it is, and what it was seeded with
            group = [j for j in range(self.ENVS) if self.pids[j] == self.pids[i]]
            for j in group:
                self.pids[j] = about['shaped_in']
            self.killed.difference_update(group)
            self.copies[i] = self.copies[i] or self.copy_of(about['seed'])
            self.ready[i] = self.copies[i].reset()

    @precondition(lambda self: not self.manager.closed and len(self.killed) < self.ENVS)
    @rule(data=st.data())
    def kill(self, data):
        victim = data.draw(st.sampled_from([i for i in range(self.ENVS) if i not in self.killed]))
        end_process(self.pids[victim])
        self.killed |= {i for i in range(self.ENVS) if self.pids[i] == self.pids[victim]}

    @rule()
    def close(self):
        self.manager.close()
        assert self.manager.closed and not children()

    @invariant()
    def what_is_ready_is_as_expected(self):
        if hasattr(self, 'ready') and not self.manager.closed:
            assert frozen(self.manager.ready_obs) == frozen(self.ready)
            assert self.manager.ready_obs_id == sorted(self.ready)

    def teardown(self):
        self.manager.close()


def test_any_sequence_of_all_that_keeps_the_games_in_order(same_footprint):
    # without a search for the shortest sequence, which may take minutes: add Phase.shrink to look into a failure
    AnySequence.TestCase.settings = settings(
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        max_examples=25,
        stateful_step_count=25,
        phases=[Phase.generate],
    )
    AnySequence.TestCase('runTest').runTest()
