"""The adapter between the checks and environments of gymnasium's interface."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium

from .probe import CheckResult, Instance


class GymnasiumFactory:
    """Makes environments of gymnasium's interface; the kit checks them by gymnasium's contract."""

    def __init__(self, make: Callable[..., gymnasium.Env]) -> None:
        self.make = make

    def __call__(self) -> Any:
        return self.make()

    def with_window(self, env: gymnasium.Env) -> 'GymnasiumFactory':
        """The same with ``render_mode='human'``; ``env`` is one without."""
        if env.render_mode == 'human':
            return self
        if 'render_mode' in inspect.signature(self.make).parameters:
            return GymnasiumFactory(partial(self.make, render_mode='human'))
        if env.spec is not None:
            return GymnasiumFactory(partial(gymnasium.make, env.spec, render_mode='human'))
        raise CheckResult("the function takes no render_mode; expected one, to pass 'human'", 'skipped')


def gymnasium_env(make: Callable[..., gymnasium.Env]) -> GymnasiumFactory:
    """What ``check_lifecycle`` and the functions of ``lifecycle_checks(gymnasium=True)`` take for gymnasium.

    Arguments:
        make: Makes an environment without arguments: a class or a function. If it does not use ``gymnasium.make``, the
            check of the window passes ``render_mode='human'``.

    Examples:
        >>> import gymnasium
        >>> from breakout_env.testing import check_lifecycle, gymnasium_env
        >>> check_lifecycle(gymnasium_env(lambda: gymnasium.make('CliffWalking-v1')), steps=20, cycles=2).failed
        []
    """
    if not callable(make):
        raise ValueError(f'make={make!r}; expected a class or a function that makes a gymnasium.Env')
    return GymnasiumFactory(make)


class GymnasiumInstance(Instance):
    """``reset`` takes the seed and returns two values, ``step`` returns five; after ``close`` nothing has to work."""

    by_gymnasium = True
    interface = 'gymnasium.Env'
    members = ('reset', 'step', 'close', 'metadata', 'spec', 'unwrapped')  # what wrappers use
    spaces = ('observation_space', 'action_space')
    timestep = ('obs', 'reward', 'terminated', 'truncated', 'info')
    _arguments: dict[str, int] = {}  # of the next reset

    def seed(self) -> None:
        """Seed the next reset."""
        self._arguments = {'seed': 7}

    def reset(self) -> Any:
        """The first observation of an episode."""
        call = 'reset(seed=7)' if self._arguments else f'reset {self.state}'.strip()
        result = self._call(call, partial(self.env.reset, **self._arguments))
        self.state, self._arguments = 'once more', {}
        obs, info = self._expect_tuple(call, result, ('obs', 'info'))
        if not isinstance(info, dict):
            found = f'{call} returned an info of {type(info).__name__}; expected a dict'
            raise CheckResult(found, 'fail', call, 'TypeError')
        return obs

    def step(self, action: object = None) -> Any:
        """Observation, reward, whether the episode has ended, and info."""
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, bool(terminated or truncated), info
