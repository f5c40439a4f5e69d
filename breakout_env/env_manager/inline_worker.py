"""A worker without a process, for debuggers and profilers, and for tests in which each fault has its exact place."""

import os
from collections.abc import Callable
from typing import Any

from .errors import EnvFailed, WorkerEnded, WorkerLost
from .idle_timer import Progress
from .options import EnvManagerOptions
from .shared_buffers import SharedSteps
from .worker_main import EnvGroup


class InlineWorker:
    """Carries out commands as a ``WorkerProcess`` does, but at once and in the caller's process. Time limits do not
    hold. An environment may raise ``WorkerLost`` or ``WorkerEnded``, as if its process had hung or died.
    """

    def __init__(self, env_fns: dict[int, Callable], shared: SharedSteps, options: EnvManagerOptions) -> None:
        self.env_ids = list(env_fns)
        self.owner_pid = os.getpid()
        self.lost = False
        self._shared = shared
        self._is_dead = False
        self._group = EnvGroup(env_fns, shared, options)
        self._number = 0
        self._replies: dict[int, tuple[Any, Exception | None]] = {}

    @property
    def alive(self) -> bool:
        return not self.lost and not self._is_dead

    def progress(self) -> Progress:
        return Progress(self._shared.call_count(self.env_ids), 0.0, False)

    def kill(self) -> None:
        """Let it die, as if somebody had killed its process."""
        self._is_dead = True

    def send(self, command: str, *args: Any) -> int:
        self._number += 1
        result: Any = None
        error: Exception | None = None
        try:
            if self.alive and command != 'end':
                result = getattr(self._group, command)(*args)
        except (EnvFailed, WorkerLost) as raised:
            error, self._is_dead = raised, isinstance(raised, WorkerLost)
        except Exception as raised:  # as a process replies
            error = EnvFailed(self.env_ids[0], raised)
        except BaseException:  # interrupted: nobody knows what state its environments are in
            self.kill()
            raise
        self._replies[self._number] = result, error
        return self._number

    def receive(self, number: int, timer: object, count: object) -> Any:
        result, error = self._replies.pop(number)
        if error is None and not self.alive:
            error = WorkerEnded(f'the inline worker of environments {self.env_ids} has ended')
        if error is not None:
            raise error
        return result

    def end(self, asked_at: float | None = None) -> None:
        """Close its environments."""
        if not self.lost:
            self.lost = True
            self._group.close(lambda message: None)
