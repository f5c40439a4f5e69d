"""The workers of an env manager: start, ask, replace and end them."""

import multiprocessing
import os
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..utils.busy_cores import waits_more_than_it_runs
from .errors import EnvFailed, WorkerLost
from .options import EnvManagerOptions, TimeLimit
from .shared_buffers import SharedSteps
from .workers import SLICE_S, InlineWorker, Worker, WorkerProcess

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
    limit: TimeLimit
    idle_s: float = 0.0
    calls: int = 0
    reply: 'Reply | None' = None

    @property
    def is_overdue(self) -> bool:
        return self.idle_s >= self.limit.seconds

    @property
    def slice_s(self) -> float:
        return 0.0 if self.is_overdue else min(SLICE_S, self.limit.seconds / 10)

    def count(self, waited_s: float) -> None:
        """Count a time of waiting in which no reply came."""
        calls_before, self.calls = self.calls, self.worker.call_count()
        if self.calls != calls_before:
            self.idle_s = 0.0
        else:
            self.idle_s += waited_s * (COMPUTING_COUNTS if self.worker.is_computing() else 1.0)


class Reply(NamedTuple):
    """A worker's result, or why there is none."""

    worker: Worker
    result: Any
    error: WorkerLost | EnvFailed | None


def send(worker: Worker, limit: TimeLimit, command: str, *args: object) -> Command:
    """Send a command to a worker, which has this time to reply."""
    return Command(worker, worker.send(command, *args), limit)


def replies_to(commands: list[Command]) -> list[Reply]:
    """Wait for all replies of commands that workers carry out side by side. An interrupted call may be repeated."""
    for index, command in enumerate(commands):
        if command.reply is None:
            command.reply = _reply_to_first(commands[index:])
    return [command.reply for command in commands if command.reply is not None]


def _reply_to_first(commands: list[Command]) -> Reply:
    first, worker = commands[0], commands[0].worker
    while not worker.has_reply(first.number, slice_s := first.slice_s):
        for command in commands:
            command.count(slice_s)
        if first.is_overdue:
            limit = f'{first.limit.seconds:g} s without progress (env.manager.{first.limit.option})'
            return Reply(worker, None, WorkerLost(f'worker process {worker.pid} did not answer within {limit}'))
    try:
        return Reply(worker, worker.take(first.number), None)
    except (WorkerLost, EnvFailed) as error:
        return Reply(worker, None, error.with_traceback(None))


class WorkerPool:
    """Workers with a group of neighbouring environments each. Dropping a pool without ``close`` ends them, too."""

    def __init__(self, options: EnvManagerOptions, env_num: int) -> None:
        self._options = options
        self.context = multiprocessing.get_context('fork' if options.context == 'inline' else options.context)
        worker_num = min(options.worker_num or len(os.sched_getaffinity(0)), env_num)
        self.groups = [list(map(int, env_ids)) for env_ids in np.array_split(range(env_num), worker_num)]
        self.workers: list[Worker] = []
        weakref.finalize(self, _end, self.workers)

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
        limit = self._options.time_limit('connect_timeout')
        replies = replies_to([send(worker, limit, command, *args) for worker in workers])
        for reply in replies:
            if reply.error is not None and not (skips_lost and isinstance(reply.error, WorkerLost)):
                raise reply.error
        return [reply.result for reply in replies if reply.error is None]

    def close(self) -> None:
        """End all workers within a bounded time; ``start`` may follow."""
        _end(self.workers)


def _end(workers: list[Worker]) -> None:
    """End workers and forget them; a fork of the process that started them only forgets them."""
    owned = [worker for worker in workers if worker.owner_pid == os.getpid()]
    for worker in owned:  # closing the pipe may not reach it: processes forked since have copies of this end
        worker.send('end')
    asked_at = time.monotonic()
    for worker in owned:
        worker.end(asked_at)
    workers.clear()
