"""The worker processes of an env manager: start, replace, ask and end them."""

import multiprocessing
import os
import time
import weakref
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from .options import EnvManagerOptions
from .shared_buffers import SharedSteps
from .worker_handle import WorkerLost, WorkerProcess
from .worker_main import EnvFailed

# What workers get to close their environments (finish a video, close a window) before they are killed.
CLOSE_TIMEOUT_S = 5.0


# A worker, the seconds it has to answer, and a command with its arguments.
Request = Tuple[WorkerProcess, Optional[float], Tuple[Any, ...]]


class WorkerPool(object):
    """
    Workers with a group of neighbouring environments each. A pool that is dropped without ``close`` ends them, too.
    """

    def __init__(
        self, options: EnvManagerOptions, env_fns: Sequence[Callable], start: Callable[..., WorkerProcess]
    ) -> None:
        self._options, self._env_fns, self._start_worker = options, env_fns, start
        self.context = multiprocessing.get_context(options.context)
        worker_num = min(options.worker_num or _usable_cores(), len(env_fns))
        self._groups = [list(map(int, env_ids)) for env_ids in np.array_split(range(len(env_fns)), worker_num)]
        self._shared: Optional[SharedSteps] = None
        self._owner_pid = os.getpid()
        self.workers: List[WorkerProcess] = []
        weakref.finalize(self, _end, self.workers, self._owner_pid)

    def start(self, shared: Optional[SharedSteps]) -> None:
        """
        Start all workers side by side and wait until they have made their environments. Results go to ``shared``; with
        None all of them are sent. Where one fails, which raises, those that were started run until ``close``.
        """
        self._shared = shared
        for env_ids in self._groups:  # one by one: close has to find those that were started before an error
            self.workers.append(self._start(env_ids))
        for worker in self.workers:
            self._receive(worker)

    def replace(self, index: int) -> WorkerProcess:
        """Start a worker in the place of a lost one, given by its index in ``workers``."""
        worker = self.workers[index] = self._start(self._groups[index])
        self._receive(worker)
        return worker

    def _start(self, env_ids: List[int]) -> WorkerProcess:
        env_fns = {env_id: self._env_fns[env_id] for env_id in env_ids}
        options = self._shared, self._options.auto_reset, self._options.reset_inplace
        worker = self._start_worker(self.context, env_fns, *options)
        worker.send('open')
        return worker

    def ask(self, worker: WorkerProcess, command: str, *args: Any) -> Any:
        """Give one worker a command; its result, or ``WorkerLost`` or ``EnvFailed`` raised."""
        worker.send(command, *args)
        return self._receive(worker)

    def _receive(self, worker: WorkerProcess) -> Any:
        result = worker.receive(self._options.connect_timeout)
        if isinstance(result, EnvFailed):
            raise result
        return result

    def exchange(self, requests: Iterable[Request]) -> Iterator[Tuple[WorkerProcess, Any]]:
        """
        Give several workers a command each, which they carry out side by side, and collect the results. A
        ``WorkerLost`` or ``EnvFailed`` comes in place of a result.
        """
        sent: List[Tuple[WorkerProcess, Optional[float], Any]] = []
        for worker, timeout_s, command in requests:
            result = None
            try:
                worker.send(*command)
            except WorkerLost as error:
                result = error.with_traceback(None)  # lest this frame and the error hold the pool in a cycle
            sent.append((worker, timeout_s, result))
        for worker, timeout_s, result in sent:
            try:
                result = result or worker.receive(timeout_s)
            except WorkerLost as error:
                result = error.with_traceback(None)
            yield worker, result

    def worker_of(self, env_id: int) -> WorkerProcess:
        """The worker that an environment is in."""
        return next(worker for worker in self.workers if env_id in worker.env_ids)

    def close(self) -> None:
        """End all workers within a bounded time; ``start`` may follow."""
        _end(self.workers, self._owner_pid)


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def _end(workers: List[WorkerProcess], owner_pid: int) -> None:
    """End workers and forget them; a fork of the owner, whose workers they are not, only forgets them."""
    if os.getpid() == owner_pid:
        for worker in workers:
            worker.request_end()
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        for worker in workers:
            worker.end(deadline)
    workers.clear()
