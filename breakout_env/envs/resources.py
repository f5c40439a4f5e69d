"""What one environment has open, and the state that it is in."""

import contextlib
import itertools
import logging
import os
from collections.abc import Callable
from enum import Enum
from operator import methodcaller
from typing import Any

logger = logging.getLogger(__name__)
# Numbers for the log. An ``id`` would not do: the next object may get the one of an object that is gone.
_ENV_NUMBERS, _RESOURCE_NUMBERS = itertools.count(1), itertools.count(1)


class State(Enum):
    """Where an environment is between ``reset`` and ``close``."""

    CLOSED = 'closed'
    PLAYING = 'playing'
    LIFE_LOST = 'life lost'  # the episode has ended, the game has not
    GAME_OVER = 'game over'


class Resources:
    """Releases what one environment has open, and logs what happens to it. It does not refer to its environment, so
    that the environment's garbage collection can close it.
    """

    def __init__(self) -> None:
        self.state = State.CLOSED
        self.owned: list[object] = []
        self.numbers: dict[str, int] = {}  # in the log, by name
        self._env_number = next(_ENV_NUMBERS)
        self._releases = contextlib.ExitStack()

    def enter(self, state: State, event: str = '') -> None:
        self.log(', '.join(filter(None, [f'{self.state.value} -> {state.value}', event])))
        self.state = state

    def own(self, name: str, resource: object, release: Callable[[Any], object] = methodcaller('close')) -> None:
        """Register a resource that was just opened, so that ``close`` releases it."""
        number = self.numbers[name] = next(_RESOURCE_NUMBERS)
        self.log(f'opened {name} {number}')
        self.owned.append(resource)
        self._releases.callback(self._release, os.getpid(), f'{name} {number}', resource, release)

    def close(self) -> None:
        """Release everything, the newest first."""
        if self.state is not State.CLOSED:
            self.enter(State.CLOSED)
        self.owned.clear()
        self._releases.close()

    def _release(self, opened_by: int, name: str, resource: object, release: Callable[[Any], object]) -> None:
        """Release a resource; log a failure, so that the other resources are released, too."""
        if os.getpid() != opened_by:  # a forked child must not end what its parent uses
            return
        self.log(f'closing {name}')
        try:
            release(resource)
        except Exception:  # a subclass's release may raise anything
            message = 'BreakoutEnv %d in process %d: closing %s failed'
            logger.warning(message, self._env_number, os.getpid(), name, exc_info=True)

    def log(self, event: str) -> None:
        logger.debug('BreakoutEnv %d in process %d: %s', self._env_number, os.getpid(), event)
