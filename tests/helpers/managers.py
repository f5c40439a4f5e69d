"""A small environment for env managers, and managers of it."""

import collections
import contextlib
import itertools
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import gym
import numpy as np
import psutil
import treetensor.numpy as tnp
from ding.envs import BaseEnv, BaseEnvTimestep, get_env_manager_cls
from easydict import EasyDict

from breakout_env.env_manager.workers import InlineWorker
from helpers.processes import wait_until

MAIN_PID = os.getpid()
# Actions of GameEnv besides the 4 that play: what can go wrong in a step.
RAISE, RAISE_AWKWARD, KILL, HANG, SLEEP = range(10, 15)


class PlantedError(Exception):
    """An error that a user's environment may raise."""


class AwkwardError(Exception):
    """One that can't be made from a message alone."""

    def __init__(self, first, second):
        super().__init__(f'{first} {second}')


class GameEnv(BaseEnv):
    """A game of numbers, fast and fixed by seed and actions. An observation is the state of a generator and the steps
    so far, so that each transition can be checked by itself. Goes wrong as ``action`` and ``cfg.reset_faults`` say.
    """

    observation_space = gym.spaces.Box(0, 255, (2, 8), np.uint8)
    action_space = gym.spaces.Discrete(4)
    reward_space = gym.spaces.Box(0, 9, (1,), np.float32)
    last_obs, ticks = None, 0  # attributes that a manager reads from an env before its first reset

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
        return threading.Lock()  # can not be pickled

    def note(self, event):
        if 'events' in self.cfg:
            with open(self.cfg['events'], 'a') as f:
                f.write(f'{event}\n')

    def seed(self, seed, dynamic_seed=True):
        self.seeds = [*self.seeds, (seed, dynamic_seed)]
        self._rng, self._dynamic_seed = np.random.default_rng(seed), dynamic_seed

    def reset(self):
        self._fail_reset()
        if not self._dynamic_seed:
            self._rng = np.random.default_rng(self.seeds[-1][0])
        self.state, self.ticks, self.points = int(self._rng.integers(2**63)), 0, 0
        self.length = 3 + self.state % 9
        self.last_obs = observe(self.state, self.ticks)
        return self.pack(self.last_obs)

    def step(self, action):
        action = int(np.asarray(action).item())
        if action >= RAISE:
            self.go_wrong(action)
        self.state, self.ticks = advance(self.state, action), self.ticks + 1
        self.last_obs = observe(self.state, self.ticks)
        reward, done = self.state % 3, self.ticks >= self.length
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
        if action == KILL:
            assert os.getpid() != MAIN_PID, 'this needs a manager with processes'
            os.kill(os.getpid(), signal.SIGKILL)
        if action == HANG:
            collections.deque(itertools.repeat(0), maxlen=0)  # in C: no Python code runs, not even a signal handler
        if action == SLEEP:
            time.sleep(1)

    def _fail_reset(self):
        """As the first line of the file says, which is then removed."""
        if 'reset_faults' in self.cfg:
            path = Path(self.cfg['reset_faults'])
            fault, _, rest = path.read_text().partition('\n')
            path.write_text(rest)
            if fault:
                self.note(fault)
                self.go_wrong(dict(hang=HANG, kill=KILL, **{'raise': RAISE})[fault])

    def reward_shaping(self, transitions):
        return [dict(transition, shaped_in=os.getpid(), seed=self.seeds[-1][0]) for transition in transitions]

    def close(self):
        time.sleep(self.cfg.get('close_takes_s', 0))
        self.note('close')
        if self.cfg.get('failing_close'):
            raise PlantedError('planted')

    def __repr__(self):
        return 'GameEnv()'


def observe(state, ticks):
    return np.array([state, ticks], np.uint64).view(np.uint8).reshape(2, 8)


def advance(state, action):
    return (state * 6364136223846793005 + 1442695040888963407 + action) % 2**63


def build(kind='breakout', env_class=GameEnv, env_num=4, env_cfg=None, seed=0, **cfg):
    """A manager of so many environments, all with one config or each with its own."""
    env_cfgs = env_cfg if isinstance(env_cfg, list) else [env_cfg or {}] * env_num
    env_fns = [partial(env_class, cfg=one) for one in env_cfgs]
    manager_class = get_env_manager_cls(EasyDict(type=kind))
    manager = manager_class(env_fns, EasyDict({**manager_class.default_config(), **cfg}))
    if seed is not None:
        manager.seed(seed)
    return manager


def build_inline(env_num=4, kind='breakout', **cfg):
    """A manager without processes: what goes wrong, and when, is exact."""
    return build(kind, env_num=env_num, **dict(worker_num=2, retry_waiting_time=0.0, context='inline') | cfg)


@contextlib.contextmanager
def launched(manager_or_kind='breakout', *args, **kwargs):
    manager = build(manager_or_kind, *args, **kwargs) if isinstance(manager_or_kind, str) else manager_or_kind
    try:
        manager.launch()
        yield manager
    finally:
        manager.close()


def worker_of(manager, env_id):
    return next(worker for worker in manager.pool.workers if env_id in worker.env_ids)


def kill_worker_of(manager, env_id):
    """As the system's out-of-memory killer would do; returns when the worker has ended."""
    worker = worker_of(manager, env_id)
    if isinstance(worker, InlineWorker):
        worker.alive = False
    else:
        os.kill(worker.pid, signal.SIGKILL)
        assert wait_until(lambda: psutil.Process(worker.pid).status() == psutil.STATUS_ZOMBIE)


def assert_consistent(manager):
    """The ready observations are those of the states that the environments are in."""
    ready = manager.ready_obs  # before the attributes, as it restarts lost environments
    last = manager.last_obs
    for i, obs in ready.items():
        np.testing.assert_array_equal(obs, last[i])


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
