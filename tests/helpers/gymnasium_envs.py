"""Environments of gymnasium's interface for the lifecycle kit: one planted fault each."""

import multiprocessing
import os

import gym
import gymnasium
import numpy as np
import pygame
from pygame._sdl2.video import Window

from helpers.lifecycle_envs import CACHE, FAULTY, Sound, child, raise_if


def converted_space(space):
    if isinstance(space, gym.spaces.Dict):
        return gymnasium.spaces.Dict({key: converted_space(one) for key, one in space.items()})
    if isinstance(space, gym.spaces.Discrete):
        return gymnasium.spaces.Discrete(int(space.n))
    return gymnasium.spaces.Box(space.low, space.high, space.shape, space.dtype.type)


class Converted(gymnasium.Env):
    """An environment for DI-engine by gymnasium's interface."""

    metadata = {'render_modes': ['human']}

    def __init__(self, cls=Sound, render_mode=None):
        self.env, self.render_mode = cls(), render_mode
        self.observation_space = converted_space(self.env.observation_space)
        self.action_space = converted_space(self.env.action_space)
        self.at_init()

    def at_init(self):
        """Nothing is opened."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.env.seed(seed, False)
        if self.render_mode == 'human':
            self.show()
        return self.env.reset(), {}

    def step(self, action):
        obs, reward, done, info = self.env.step(np.asarray(action).item())
        return obs, float(reward[0]), done, False, info

    def close(self):
        self.env.close()
        self.hide()

    def show(self):
        pygame.display.init()
        pygame.display.set_mode((50, 50))

    def hide(self):
        pygame.display.quit()


def by_gymnasium(cls):
    return lambda render_mode=None: Converted(cls, render_mode)


def gymnasium_fault(**parts):
    return type('PlantedByGymnasium', (Converted,), parts)


def last_step(change):
    """A step that changes its five values at the end of an episode."""

    def step(env, action):
        values = Converted.step(env, action)
        return change(*values) if values[2] else values

    return step


def show_one_more(env):
    pygame.display.init()
    env.windows = [*getattr(env, 'windows', ()), Window(size=(50, 50))]


def hide_all(env):
    for window in vars(env).pop('windows', ()):
        window.destroy()


def reset_half_way(env, *, seed=None, options=None):
    env.steps_fail = getattr(env, 'closed', False)
    return Converted.reset(env, seed=seed)


def reset_in_two_parts(env, *, seed=None, options=None):
    env.one = 1
    env.two = 2
    return Converted.reset(env, seed=seed)


def step_unless_half_way(env, action):
    raise_if(env.steps_fail)
    return Converted.step(env, action)


def open_after_close(env, action):
    return Converted.step(env, action) if env.env.playing else CACHE.append(child())


def only_in_the_first_process(env):
    raise_if(
        multiprocessing.parent_process() is not None and multiprocessing.current_process().name.startswith('Worker')
    )


# what gymnasium's contract leaves open or says in another way
DING_ONLY = (
    'lazy_constructor',
    'close_half_built',
    'close_after_error',
    'reset_after_close',
    'step_after_close',
    'forgotten_close',
    'info_at_the_end',
    'managers',
)
FAULTY_BY_GYMNASIUM = [(check, by_gymnasium(cls)) for check, cls in FAULTY if check not in DING_ONLY] + [
    ('works', gymnasium_fault(reset=lambda env, *, seed=None, options=None: env.env.reset())),
    ('works', gymnasium_fault(reset=lambda env, *, seed=None, options=None: (env.env.reset(), 0))),
    ('works', gymnasium_fault(step=lambda env, action: Converted.step(env, action)[:4])),
    ('spaces_before_reset', gymnasium_fault(at_init=lambda env: delattr(env, 'observation_space'))),
    ('close_before_reset', gymnasium_fault(close=lambda env: raise_if(not hasattr(env.env, 'time')))),
    ('close_before_reset', gymnasium_fault(at_init=lambda env: CACHE.append(open(os.devnull)))),
    (
        'close_after_error',
        gymnasium_fault(reset=reset_in_two_parts, close=lambda env: hasattr(env, 'one') and env.two),
    ),
    (
        'reset_after_close',
        gymnasium_fault(
            reset=reset_half_way, step=step_unless_half_way, close=lambda env: setattr(env, 'closed', True)
        ),
    ),
    ('reset_after_close', gymnasium_fault(close=lambda env: vars(env).pop('env', Sound()).close())),
    ('step_after_close', gymnasium_fault(step=open_after_close)),
    ('same_seed_same_episode', gymnasium_fault(reset=lambda env: (env.env.reset(), {}))),
    ('same_seed_same_episode', gymnasium_fault(reset=lambda env, *, seed=None, options=None: (env.env.reset(), {}))),
    ('matches_spaces', gymnasium_fault(step=last_step(lambda obs, *others: (obs + np.float32(500), *others)))),
    ('matches_spaces', gymnasium_fault(step=last_step(lambda obs, _, *others: (obs, None, *others)))),
    ('info_at_the_end', gymnasium_fault(step=last_step(lambda *values: (*values[:4], None)))),
    ('human_window', gymnasium_fault(hide=lambda env: None)),
    ('human_window', gymnasium_fault(show=show_one_more, hide=hide_all)),
    ('vector_envs', gymnasium_fault(at_init=only_in_the_first_process)),
]
