"""Environments for the lifecycle kit: sound ones, and others with one planted fault each."""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from multiprocessing import shared_memory

import ale_py
import cv2
import gym
import numpy as np
import torch
from ding.envs import BaseEnv, BaseEnvTimestep

SLEEP = "print('up', flush=True); import time; time.sleep(600)"
STUBBORN = f'import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}'
CACHE = []


def child(code=SLEEP):
    process = subprocess.Popen([sys.executable, '-S', '-c', code], stdout=subprocess.PIPE)
    process.stdout.readline()
    return process


def end(process):
    process.kill(), process.wait(), process.stdout.close()


class Sound(BaseEnv):
    """A walk of ten steps with float32 observations, and places for what is planted."""

    playing = False
    opened = None
    _seed = None

    def __init__(self, cfg={}):
        self.observation_space = gym.spaces.Box(-100, 100, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.reward_space = gym.spaces.Box(0, 10, (1,), np.float32)
        self.at_init()

    def seed(self, seed, dynamic_seed=True):
        self._seed = seed

    def reset(self):
        if self.opened is None:
            self.opened = self.at_open() or ()
        self.playing, self.time = True, 0
        self.place = np.random.default_rng(self._seed).normal(size=3).astype(np.float32)
        self.at_reset()
        return self.observe()

    def step(self, action):
        if not self.playing:
            raise RuntimeError('no episode') from ValueError('without a traceback, as causes from process pools')
        self.place += np.float32(int(action) - 0.5)
        self.time += 1
        done = self.time == 10
        return BaseEnvTimestep(self.observe(), np.ones(1, np.float32), done, self.info() if done else {})

    def close(self):
        opened, self.opened = self.opened, None
        was_playing, self.playing = self.playing, False
        self.at_close(opened, was_playing)

    def observe(self):
        return self.place.copy()

    def info(self):
        return {'eval_episode_return': 1.0}

    def at_close(self, opened, was_playing):
        if opened:
            opened()

    def random_action(self):
        return np.array([self.action_space.sample()])

    def at_init(self):
        """Nothing is opened."""

    at_open = at_reset = at_init

    def __repr__(self):
        return 'an environment'


class DictObservations(Sound):
    """Arguments of reset, a dict, a continuous action, no random_action."""

    random_action = BaseEnv.random_action

    def at_init(self):
        spaces = dict(place=self.observation_space, time=gym.spaces.Box(0, 99, (1,), np.int64))
        self.observation_space = gym.spaces.Dict(spaces)
        self.action_space = gym.spaces.Box(0, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None, **kwargs):
        return super().reset()

    def observe(self):
        return {'place': self.place.copy(), 'time': np.array([self.time])}


class Caches(Sound):
    """Imports, native thread pools and a file of the module's, in the process's first reset; a log file."""

    def at_open(self):
        import sqlite3  # noqa: F401

        cv2.setNumThreads(4)
        cv2.GaussianBlur(np.zeros((2000, 2000), np.uint8), (31, 31), 0)
        torch.ones(500, 500) @ torch.ones(500, 500)
        if not CACHE:
            CACHE.append(open(os.devnull))
        return open(os.path.join(tempfile.gettempdir(), 'log'), 'a').close


class Owner(Sound):
    """A stubborn process, a folder and a thread, released by a finalizer."""

    def at_open(self):
        stack, event = contextlib.ExitStack(), threading.Event()
        thread = threading.Thread(target=event.wait, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(event.set)
        stack.enter_context(tempfile.TemporaryDirectory())
        stack.callback(end, child(STUBBORN))
        return weakref.finalize(self, stack.close)


SOUND = [Sound, DictObservations, Caches, Owner]


def planted(**parts):
    return type('Planted', (Sound,), parts)


def thread(env):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


def raise_if(wrong):
    if wrong:
        raise RuntimeError('planted')


def failing_step(env, action):
    env.broken = True
    timestep = Sound.step(env, action)
    env.broken = False
    return timestep


def half_a_reset(env):
    env.one = 1
    env.two = 2


def only_once(env):
    raise_if(hasattr(env, 'once'))
    env.once = True


def opened_child(env):
    return functools.partial(end, child())


def opened_window(env):
    env.window = child()
    weakref.finalize(env, end, env.window)


def wait_after_play(env, _, played):
    if played:
        signal.pause()


def wait_for_window(env, _, played):
    if played:
        env.window.terminate(), env.window.wait()


def raise_key_error(*args):
    return {}['a key']


def seed_by_keyword(env, seed, *, dynamic_seed=True):
    env._seed = seed


class NeedsConfig(Sound):
    """As dizoo's LunarLander and Pendulum: the constructor reads the config."""

    def __init__(self, cfg):
        self.size = cfg.size
        super().__init__(cfg)


class OnlyInItsFirstProcess(Sound):
    """Works where it was imported, and in no other process."""

    pid = os.getpid()

    def at_reset(self):
        raise_if(os.getpid() != self.pid)


def only_after_close(env):
    raise_if(env.playing)
    return Sound.reset(env)


def raise_in_the_seventh(env, action):
    if env.time == 6:
        raise IndexError(object())  # the text differs each time
    return Sound.step(env, action)


def one_at_a_time():
    """One instance in each process."""
    if os.getpid() in CACHE:
        raise RuntimeError('planted')
    CACHE.append(os.getpid())
    return Sound()


no_reset_after_close = planted(at_open=only_once)
spaces_after_reset = planted(__init__=lambda env: None, at_open=lambda env: Sound.__init__(env))
FAULTY = [
    ('lazy_constructor', planted(at_init=lambda env: setattr(env, 'ale', ale_py.ALEInterface()))),
    ('lazy_constructor', planted(at_init=lambda env: setattr(env, 'file', open(os.devnull)))),
    ('reset_reuses', planted(at_reset=lambda env: vars(env).setdefault('f', []).append(open(os.devnull)))),
    ('close_releases', planted(at_open=thread)),
    ('close_releases', planted(at_open=lambda env: CACHE or CACHE.append(child()))),
    ('close_releases', planted(at_open=lambda env: shared_memory.SharedMemory(create=True, size=9).close())),
    ('close_releases', planted(at_open=lambda env: tempfile.mkdtemp() and None)),
    ('forgotten_close', planted(at_open=opened_child)),
    ('close_before_reset', planted(at_close=lambda env, *_: raise_if(not hasattr(env, 'time')))),
    ('close_twice', planted(at_close=lambda env, opened, _: raise_if(opened is None and hasattr(env, 'time')))),
    (
        'close_twice',
        planted(at_close=lambda env, opened, _: opened is None and hasattr(env, 'time') and os.kill(os.getpid(), 11)),
    ),
    ('close_half_built', planted(at_init=lambda env: setattr(env, 'x', 1), at_close=lambda env, *_: env.x)),
    ('close_after_error', planted(step=failing_step, at_close=lambda env, *_: raise_if(getattr(env, 'broken', False)))),
    ('close_after_error', planted(at_reset=half_a_reset, at_close=lambda env, *_: hasattr(env, 'one') and env.two)),
    ('close_in_time', planted(at_close=wait_after_play)),
    ('close_in_time', planted(at_open=opened_window, at_close=wait_for_window)),
    ('reset_after_close', no_reset_after_close),
    ('step_after_close', planted(close=lambda env: None)),
    ('step_after_close', planted(step=lambda env, action: Sound.step(env, action) if env.playing else None)),
    ('memory_level', planted(at_reset=lambda env: vars(env).setdefault('l', []).append(b'x' * 20_000))),
    ('same_seed_same_episode', planted(seed=lambda env, seed, dynamic_seed=True: None)),
    ('same_seed_same_episode', planted(observe=lambda env: env.place + np.float32(os.getpid() % 97))),
    ('observations_owned', planted(observe=lambda env: env.place)),
    ('matches_spaces', planted(observe=lambda env: env.place.astype(np.float64))),
    ('info_at_the_end', planted(info=dict)),
    ('managers', planted(at_open=lambda env: os.getpid() != os.getsid(0) and setattr(env, 'child', child()) or None)),
]

# what does not work at all, and what the finding says
BROKEN = [
    (NeedsConfig, 'the constructor raised TypeError: NeedsConfig.__init__() missing'),
    (lambda: NeedsConfig({}), "the constructor raised AttributeError: 'dict' object has no attribute 'size' (life"),
    (lambda: None, 'it is a NoneType without seed, reset, step, close; expected'),
    (planted(reset=raise_key_error), "reset raised KeyError: 'a key' (lifecycle_envs.py:"),
    (planted(reset=lambda env, seed: None), 'reset raised TypeError: <lambda>() missing 1 required'),
    (planted(reset=lambda env: signal.pause()), 'reset did not return in 3 s'),
    (planted(step=raise_key_error), "step raised KeyError: 'a key' (lifecycle_envs.py:"),
    (planted(step=lambda env, action: os.kill(os.getpid(), 11)), 'step ended the process (-11)'),
    (planted(step=lambda env, action: (*Sound.step(env, action), {})), 'expected obs, reward, done, info'),
    (planted(random_action=raise_key_error), "a random action raised KeyError: 'a key' (lifecycle_envs.py:"),
    (OnlyInItsFirstProcess, 'reset raised RuntimeError: planted'),
]
# a call that fails in several checks: the one that reports it, what it found, and what its fix says
FAILING_CALLS = [
    (planted(step=raise_in_the_seventh), 'memory_level', 'step raised IndexError', '`step` return without an error'),
    (one_at_a_time, 'lazy_constructor', 'the constructor raised RuntimeError', 'the constructor, `reset` and `step`'),
    (planted(reset=only_after_close), 'reset_reuses', 'reset once more raised RuntimeError', 'after each episode'),
    (planted(close=raise_key_error), 'close_before_reset', 'close before the', 'Raise nothing in `close`'),
    (planted(close=lambda env, now: None), 'close_before_reset', 'close before the', 'Raise nothing in `close`'),
    (no_reset_after_close, 'reset_after_close', 'reset after close raised RuntimeError', 'Let `reset` open again'),
    (planted(at_close=wait_after_play), 'close_in_time', 'close did not return in 3 s; it is in', 'Bound each wait'),
    (planted(seed=lambda env, seed: None), 'same_seed_same_episode', 'seed(7, True) raised', '`seed(0, True)`'),
    (planted(seed=seed_by_keyword), 'same_seed_same_episode', 'seed(7, True) raised', '`seed(self, seed, dynamic_'),
    (
        planted(seed=raise_key_error),
        'same_seed_same_episode',
        'seed(7) raised KeyError',
        'the first time before `reset`',
    ),
]
