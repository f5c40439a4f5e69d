"""The adapter between the checks and environments of gymnasium's interface."""

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium

from .probe import CheckResult, Instance, Probe

_SEED = 7


class GymnasiumFactory:
    """Makes environments of gymnasium's interface; the kit checks them by gymnasium's contract."""

    def __init__(self, make: Callable[..., gymnasium.Env]) -> None:
        self.make = make

    def __call__(self) -> Any:
        return self.make()

    def with_window(self, env: gymnasium.Env) -> 'GymnasiumFactory':
        """The same with ``render_mode='human'``; ``env`` is one without."""
        spec = env.spec
        if env.render_mode == 'human':
            return self
        if 'render_mode' in inspect.signature(self.make).parameters:
            return GymnasiumFactory(lambda: self.make(render_mode='human'))
        if spec is not None:
            return GymnasiumFactory(lambda: gymnasium.make(spec, render_mode='human'))
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

    reopens = False

    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        self._seed: int | None = None

    def seed(self) -> None:
        """Seed the next reset."""
        self._seed = _SEED

    def reset(self) -> Any:
        """The first observation of an episode."""
        seed, self._seed = self._seed, None
        name = self._name_of_reset()
        if seed is None:
            result = self._call(name, self.env.reset)
        else:
            name = f'reset(seed={seed})'
            result = self._call(name, lambda: self.env.reset(seed=seed))
        obs, info = self._expect_tuple(name, result, 2, 'obs and info')
        if not isinstance(info, dict):
            raise CheckResult(f'{name} returned an info of {type(info).__name__}; expected a dict', key=(name, 'info'))
        return obs

    def step(self, action: object = None) -> tuple[Any, Any, bool, Any]:
        """Observation, reward, whether the episode has ended, and info."""
        values = self._step(5, 'obs, reward, terminated, truncated and info', action)
        obs, reward, terminated, truncated, info = values
        return obs, reward, bool(terminated or truncated), info
