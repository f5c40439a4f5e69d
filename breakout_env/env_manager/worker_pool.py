"""The worker processes of an env manager: start, replace, ask and end them."""

import multiprocessing
import os
import time
import weakref
from typing import Any, Callable, Iterable, Iterator, List, Optional, Protocol, Sequence, Tuple

import numpy as np

from .options import EnvManagerOptions
from .shared_buffers import SharedSteps
from .worker_handle import WorkerLost
from .worker_main import EnvFailed

# What workers get to close their environments (finish a video, close a window) before they are killed.
CLOSE_TIMEOUT_S = 5.0


class WorkerHandle(Protocol):
    """What the manager needs of a worker; ``WorkerProcess`` is the one in use."""

    env_ids: List[int]
    lost: bool  # whether it was ended for good

    @property
    def alive(self) -> bool: ...

    def send(self, command: str, *args: Any) -> None: ...

    def receive(self, timeout_s: Optional[float]) -> Any: ...

    def request_end(self) -> None: ...

    def end(self, deadline: float = 0.0) -> None: ...


# A worker, the seconds it has to answer, and a command with its arguments.
Request = Tuple[WorkerHandle, Optional[float], Tuple[Any, ...]]


class WorkerPool(object):
    """
    Overview:
        Workers with a group of neighbouring environments each. A pool that is dropped without ``close`` ends them, too.
    """

    def __init__(
        self, options: EnvManagerOptions, env_fns: Sequence[Callable], start: Callable[..., WorkerHandle]
    ) -> None:
        """
        Arguments:
            - options (:obj:`EnvManagerOptions`): The manager's.
            - env_fns (:obj:`Sequence[Callable]`): What makes each environment.
            - start (:obj:`Callable`): Starts a worker; takes the arguments of ``WorkerProcess``.
        """
        self._options, self._env_fns, self._start_worker = options, env_fns, start
        self.context = multiprocessing.get_context(options.context)
        worker_num = min(options.worker_num or _usable_cores(), len(env_fns))
        self._groups = [list(map(int, env_ids)) for env_ids in np.array_split(range(len(env_fns)), worker_num)]
        self._shared: Optional[SharedSteps] = None
        self._owner_pid = os.getpid()
        self.workers: List[WorkerHandle] = []
        weakref.finalize(self, _end, self.workers, self._owner_pid)

    def start(self, shared: Optional[SharedSteps]) -> None:
        """
        Overview:
            Start all workers side by side and wait until they have made their environments.
        Arguments:
            - shared (:obj:`Optional[SharedSteps]`): Where results go; None to send all of them.
        Raises:
            - WorkerLost, EnvFailed: If one fails; those that were started run until ``close``.
        """
        self._shared = shared
        for env_ids in self._groups:  # one by one: close has to find those that were started before an error
            self.workers.append(self._start(env_ids))
        for worker in self.workers:
            self._receive(worker)

    def replace(self, index: int) -> WorkerHandle:
        """Start a worker in the place of a lost one, given by its index in ``workers``."""
        worker = self.workers[index] = self._start(self._groups[index])
        self._receive(worker)
        return worker

    def _start(self, env_ids: List[int]) -> WorkerHandle:
        env_fns = {env_id: self._env_fns[env_id] for env_id in env_ids}
        options = self._shared, self._options.auto_reset, self._options.reset_inplace
        worker = self._start_worker(self.context, env_fns, *options)
        worker.send('open')
        return worker

    def ask(self, worker: WorkerHandle, command: str, *args: Any) -> Any:
        """Give one worker a command; its result, or ``WorkerLost`` or ``EnvFailed`` raised."""
        worker.send(command, *args)
        return self._receive(worker)

    def _receive(self, worker: WorkerHandle) -> Any:
        result = worker.receive(self._options.connect_timeout)
        if isinstance(result, EnvFailed):
            raise result
        return result

    def exchange(self, requests: Iterable[Request]) -> Iterator[Tuple[WorkerHandle, Any]]:
        """
        Overview:
            Give several workers a command each, which they carry out side by side, and collect the results. A \
            ``WorkerLost`` or ``EnvFailed`` comes in place of a result.
        """
        sent: List[Tuple[WorkerHandle, Optional[float], Any]] = []
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

    def worker_of(self, env_id: int) -> WorkerHandle:
        """The worker that an environment is in."""
        return next(worker for worker in self.workers if env_id in worker.env_ids)

    def close(self) -> None:
        """End all workers within a bounded time; ``start`` may follow."""
        _end(self.workers, self._owner_pid)


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def _end(workers: List[WorkerHandle], owner_pid: int) -> None:
    """End workers and forget them; a fork of the owner, whose workers they are not, only forgets them."""
    if os.getpid() == owner_pid:
        for worker in workers:
            worker.request_end()
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        for worker in workers:
            worker.end(deadline)
    workers.clear()
