"""A small environment with a controller, a window and a temporary folder that are opened late, reused and always
released.

    breakout check-env examples.minimal_env:MinimalEnv
"""

import contextlib
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path

import gym
import numpy as np
from ding.envs import BaseEnv, BaseEnvTimestep

# keeps a place between -9 and 9, and says where it is
CONTROLLER = """import sys
for line in sys.stdin:
    place = max(-9, min(9, int(line[1:]) + (place if line[0] == 'm' else 0)))
    print(place, flush=True)"""
WINDOW = """import sys, pygame
pygame.display.set_mode((320, 64))
for line in sys.stdin:
    pygame.display.set_caption(line), pygame.event.pump()"""


@contextlib.contextmanager
def program(code):
    process = subprocess.Popen([sys.executable, '-c', code], stdin=-1, stdout=-1, stderr=-3, text=True, bufsize=1)
    try:
        yield process
    finally:
        process.kill()  # a process that does not answer ends as well
        process.communicate()


class MinimalEnv(BaseEnv):
    _release = None  # in the class: `close` is called where `__init__` has not run

    def __init__(self, cfg={}):
        self.observation_space = gym.spaces.Box(-9, 9, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(3)
        self.reward_space = gym.spaces.Box(0, 1, (1,), np.float32)
        self._rng = np.random.default_rng()

    def seed(self, seed, dynamic_seed=True):
        self._seed, self._dynamic_seed, self._rng = seed, dynamic_seed, np.random.default_rng(seed)
        self.action_space.seed(seed)

    def reset(self):
        if self._release is None:
            with contextlib.ExitStack() as stack:
                self._log = Path(stack.enter_context(tempfile.TemporaryDirectory()), 'episodes')
                self._controller = stack.enter_context(program(CONTROLLER))
                self._window = stack.enter_context(program(WINDOW))
                self._release = weakref.finalize(self, stack.pop_all().close)
        if not getattr(self, '_dynamic_seed', True):
            self._rng = np.random.default_rng(self._seed)
        self._steps = 0
        return self._ask(f's{self._rng.integers(-5, 6)}')

    def step(self, action):
        if self._release is None:
            raise RuntimeError('no episode is running; call reset first')
        obs, self._steps = self._ask(f'm{int(action) - 1}'), self._steps + 1
        done = abs(obs[0]) == 9 or self._steps == 100
        info = {'eval_episode_return': float(abs(obs[0]) == 9)} if done else {}
        if done:
            with self._log.open('a') as log:
                log.write(f'{self._steps} steps\n')
        return BaseEnvTimestep(obs, np.float32([abs(obs[0]) == 9]), done, info)

    def _ask(self, question):
        self._controller.stdin.write(f'{question}\n')
        place = self._controller.stdout.readline()
        with contextlib.suppress(BrokenPipeError):  # its user has closed the window
            self._window.stdin.write(place)
        return np.array([place], np.float32)

    def random_action(self):
        return np.array([self.action_space.sample()])

    def close(self):
        release, self._release = self._release, None
        if release is not None:
            release()

    def __repr__(self):
        return 'MinimalEnv()'
