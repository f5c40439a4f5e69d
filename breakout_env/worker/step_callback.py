"""An env manager that calls back with the results of each step."""

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from ding.envs import BaseEnvManager, BaseEnvTimestep

Result = TypeVar('Result')


def weakly(method: Any) -> Callable:
    """A bound method for a part of the same object, without a reference cycle: in a cycle, DI-engine's workers close
    their env manager (in ``__del__``) when Python has ended its processes, with a BrokenPipeError on the screen.
    """
    return partial(method.__func__, weakref.proxy(method.__self__))


class StepCallback:
    """Wraps any of DI-engine's env managers, and calls back with the timesteps of each step. DI-engine's collectors and
    evaluators have no hook for what is not a transition, but all of them step through their manager.
    """

    def __init__(self, manager: BaseEnvManager, callback: Callable[[dict[int, BaseEnvTimestep]], None]) -> None:
        self._manager = manager
        self._callback = callback

    def step(self, actions: Mapping[int, object]) -> dict[int, BaseEnvTimestep]:
        """The manager's step, passed to the callback on the way."""
        timesteps = self._if_alive(self._manager.step, actions)
        self._callback(timesteps)
        return timesteps

    def reset(self, *args: object) -> None:
        """The manager's reset."""
        self._if_alive(self._manager.reset, *args)

    def _if_alive(self, method: Callable[..., Result], *args: object) -> Result:
        try:
            return method(*args)
        except (
            OSError,
            EOFError,
        ):  # a signal to all processes of a run ends its workers, too: it may be the callback's
            self._callback({})
            raise

    def __getattr__(self, name: str) -> Any:
        if name == '_manager':  # in a half-built or copied object, where it would recurse for ever
            raise AttributeError(name)
        return getattr(self._manager, name)
