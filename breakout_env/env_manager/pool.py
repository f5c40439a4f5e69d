"""The workers of an env manager: start, ask, replace and end them."""

import logging
import math
import multiprocessing
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..utils.busy_cores import waits_more_than_it_runs
from .errors import EnvFailed, WorkerEnded, WorkerLost
from .options import EnvManagerOptions
from .shared_buffers import SharedSteps
from .workers import InlineWorker, Outcome, Worker, WorkerProcess

logger = logging.getLogger(__name__)
SLICE_S = 1.0  # the longest wait at a time
# How much a second counts in which a worker computes: on a busy machine it may wait long for a core, and an endless
# loop has to end.
COMPUTING_COUNTS = 0.1


@dataclass
class Command:
    """A command to a worker, and the seconds in which no call of its environments has returned. They are counted in
    slices: while this process is stopped (Ctrl-Z) or the machine sleeps, nothing is counted.
    """

    worker: Worker
    number: int
    limit: str  # the option that limits the time to reply
    limit_s: float
    idle_s: float = 0.0
    calls: int = 0
    outcome: Outcome | None = None

    @property
    def is_overdue(self) -> bool:
        return self.idle_s >= self.limit_s

    @property
    def slice_s(self) -> float:
        return 0.0 if self.is_overdue else min(SLICE_S, self.limit_s / 10)

    def count(self, waited_s: float) -> None:
        """Count a time of waiting in which no reply came."""
        calls_before, self.calls = self.calls, self.worker.call_count()
        if self.calls != calls_before:
            self.idle_s = 0.0
        elif self.limit != 'close_timeout' and self.worker.is_computing():
            self.idle_s += waited_s * COMPUTING_COUNTS
        else:
            self.idle_s += waited_s


def send(worker: Worker, options: EnvManagerOptions, limit: str, command: str, *args: object) -> Command:
    """Send a command to a worker. ``limit`` is the option that limits the time to reply."""
    limit_s = getattr(options, limit)
    return Command(worker, worker.send(command, *args), limit, math.inf if limit_s is None else limit_s)


def replies_to(commands: list[Command]) -> list[tuple[Worker, Any, WorkerLost | EnvFailed | None]]:
    """Wait until workers that work side by side have replied to commands: each worker with its result, or why there is
    none. An interrupted call may be repeated.
    """
    for index, command in enumerate(commands):
        worker = command.worker
        while command.outcome is None:
            slice_s = command.slice_s
            command.outcome = worker.receive(command.number, slice_s)
            if command.outcome is None and command.is_overdue:
                time = f'{command.limit_s:g} s without progress (env.manager.{command.limit})'
                command.outcome = None, WorkerLost(f'worker process {worker.pid} did not answer within {time}')
            elif command.outcome is None:
                for waiting in commands[index:]:
                    waiting.count(slice_s)
    return [(command.worker, *command.outcome) for command in commands if command.outcome is not None]


class WorkerPool:
    """Workers with a group of neighbouring environments each. Dropping a pool without ``close`` ends them, too."""

    def __init__(self, options: EnvManagerOptions, env_num: int) -> None:
        self._options = options
        self.context = multiprocessing.get_context('fork' if options.context == 'inline' else options.context)
        worker_num = min(options.worker_num or len(os.sched_getaffinity(0)), env_num)
        self.groups = [list(map(int, env_ids)) for env_ids in np.array_split(range(env_num), worker_num)]
        self.workers: list[Worker] = []
        weakref.finalize(self, _end, self.workers, options)

    def start(self, env_fns: Sequence[Callable], shared: SharedSteps) -> None:
        """Start all workers and wait until they have made their environments, side by side. Results go to ``shared``.
        If one fails, this raises, and the others run until ``close``.
        """
        self._env_fns, self._shared = env_fns, shared
        if waits_more_than_it_runs():  # beside programs that take the cores, nice workers would hardly get any time
            self._options = self._options.model_copy(update=dict(nice=0))
        for env_ids in self.groups:  # one by one, so that close finds the workers that were started before an error
            self.workers.append(self._start(env_ids))
        self.ask(self.workers, 'open')

    def replace(self, index: int) -> None:
        """Start a worker in the place of a lost one, given by its index in ``workers``."""
        self.workers[index] = self._start(self.groups[index])
        self.ask([self.workers[index]], 'open')

    def _start(self, env_ids: list[int]) -> Worker:
        env_fns = {env_id: self._env_fns[env_id] for env_id in env_ids}
        if self._options.context == 'inline':
            return InlineWorker(env_fns, self._shared, self._options)
        return WorkerProcess(self.context, env_fns, self._shared, self._options)

    def ask(self, workers: Iterable[Worker], command: str, *args: object, skips_lost: bool = False) -> list[Any]:
        """Give some workers a command; their results. Raises ``EnvFailed``, and ``WorkerLost`` unless skipped."""
        options = self._options
        replies = replies_to([send(worker, options, 'connect_timeout', command, *args) for worker in workers])
        for _, _, error in replies:
            if error is not None and not (skips_lost and isinstance(error, WorkerLost)):
                raise error
        return [result for _, result, error in replies if error is None]

    def close(self) -> None:
        """End all workers within a bounded time; ``start`` may follow."""
        _end(self.workers, self._options)


def _end(workers: list[Worker], options: EnvManagerOptions) -> None:
    """End workers and forget them; a fork of the process that started them only forgets them."""
    owned = [worker for worker in workers if worker.owner_pid == os.getpid() and not worker.lost]
    for worker, _, error in replies_to([send(worker, options, 'close_timeout', 'close') for worker in owned]):
        if error is not None and not isinstance(error, WorkerEnded):
            logger.warning('%s and is killed', error)
        worker.end(0.0 if error is not None else options.close_timeout)
    workers.clear()
