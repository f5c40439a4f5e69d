"""The worker processes of an env manager, seen from the manager: start, ask, notice a loss, replace and end them."""

import contextlib
import logging
import math
import multiprocessing
import os
import pickle
import select
import threading
import time
import weakref
from multiprocessing.connection import wait
from operator import itemgetter
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
from ding.utils import CloudPickleWrapper

from ..compat import multiprocessing_forks  # noqa: F401  # before a worker is started
from .options import EnvManagerOptions
from .shared_buffers import SharedSteps
from .worker_main import EnvFailed, run_group

# A timeout is counted in slices of waiting: a process that was stopped (Ctrl-Z) or suspended with its machine does not
# count that time against its workers.
SLICE_S = 1.0
# What a worker gets to close an environment (finish a video, close a window) before it is killed.
CLOSE_TIMEOUT_S = 5.0
logger = logging.getLogger(__name__)


class WorkerLost(RuntimeError):
    """A worker process ended or did not answer in time; the message says which."""


class WorkerEnded(WorkerLost):
    """A worker process ended, or was killed by somebody else."""


class WorkerProcess(object):
    """
    A worker process, which carries out its commands in their order. Their answers may be waited for in any order.
    """

    def __init__(self, context: Any, env_fns: Dict[int, Callable], *options: Any) -> None:
        """Start the process; the first command must be ``open``. ``env_fns`` and ``options`` are ``EnvGroup``'s."""
        self.env_ids = list(env_fns)
        self.owner_pid = os.getpid()
        self.lost = False  # whether it was ended for good
        self._connection, theirs = context.Pipe()
        self._number = 0
        self._answers: Dict[int, Any] = {}  # by number: those that came before one that was waited for
        forked = context.get_start_method() == 'fork'
        try:
            self._process = context.Process(
                target=run_group,
                args=(
                    theirs,
                    self._connection if forked else None,
                    self.owner_pid,
                    threading.current_thread() is threading.main_thread(),
                    CloudPickleWrapper(env_fns),
                    *options,
                ),
                daemon=True,
                name=f'environments {self.env_ids[0]} to {self.env_ids[-1]}',
            )
            self._process.start()
        except BaseException:  # no more processes, or an environment that can't be sent to one
            self._connection.close()
            raise
        finally:
            theirs.close()
        self.pid: int = self._process.pid
        self._poller = select.poll()
        self._poller.register(self._connection.fileno(), select.POLLIN)
        self._poller.register(self._process.sentinel, select.POLLIN)

    @property
    def alive(self) -> bool:
        return not self.lost and self._process.is_alive()

    def send(self, command: str, *args: Any) -> int:
        """
        Give it a command: the name of a method of ``EnvGroup``, and arguments. Returns the number that its answer will
        have; ``receive`` says if the process has ended.
        """
        self._number += 1
        message = pickle.dumps((self._number, command, args), pickle.HIGHEST_PROTOCOL)
        with contextlib.suppress(OSError):  # an end of the pipe is closed
            self._connection.send_bytes(message)
        return self._number

    def receive(self, number: int, timeout_s: Optional[float], waited: List[float]) -> Any:
        """
        Wait for the answer to a command: ``timeout_s`` seconds or, with None, as long as the process lives. In its
        place comes ``WorkerLost`` if there is none in time, ``WorkerEnded`` if the process has ended. ``waited``, its
        one number of seconds, counts for all workers that were asked together.
        """
        while number not in self._answers and not self.lost:
            left_s = math.inf if timeout_s is None else max(timeout_s - waited[0], 0.0)
            ready = self._poller.poll(1000 * min(left_s, SLICE_S))
            if not ready:
                waited[0] += min(left_s, SLICE_S)
                if timeout_s is not None and waited[0] >= timeout_s:
                    return WorkerLost(f'worker process {self.pid} did not answer within {timeout_s:g} s')
                continue
            if self._connection.fileno() not in map(itemgetter(0), ready):
                break
            try:
                answered, result = pickle.loads(self._connection.recv_bytes())  # noqa: S301  # from a process that this one started
            except (EOFError, OSError):  # it ended before or while it answered
                break
            self._answers[answered] = result
        return self._answers.pop(number) if number in self._answers else WorkerEnded(self._how_it_ended())

    def _how_it_ended(self) -> str:
        if self.lost:
            return f'the worker process of environments {self.env_ids} has ended; reset them to start another'
        self._process.join(SLICE_S)
        code = self._process.exitcode
        how = f'signal {-code}' if code is not None and code < 0 else f'exit code {code}'
        return f'worker process {self.pid} has ended ({how})'

    def end(self, deadline: float = 0.0) -> None:
        """
        Wait for its end until a time of ``time.monotonic``, or ``CLOSE_TIMEOUT_S`` since it closed an environment, then
        kill it; release what belonged to it.
        """
        if self.lost:
            return
        self.lost = True
        self._answers.clear()  # steps of environments that are gone
        sources = self._connection, self._process.sentinel
        with contextlib.suppress(EOFError, OSError):
            while (left_s := deadline - time.monotonic()) > 0 and self._connection in wait(sources, left_s):
                self._connection.recv_bytes()  # it has closed another one
                deadline = time.monotonic() + CLOSE_TIMEOUT_S
        self._connection.close()
        self._process.join(max(deadline - time.monotonic(), 0.0))
        if self._process.is_alive():
            if deadline:
                logger.warning('worker process %d closed no environment for %g s: killed', self.pid, CLOSE_TIMEOUT_S)
            self._process.kill()  # a stopped process does not see a SIGTERM
            self._process.join()
        self._process.close()


# A worker, the seconds it has to answer, and a command with its arguments.
Request = Tuple[WorkerProcess, Optional[float], Tuple[Any, ...]]


class Exchange(object):
    """Commands to several workers, sent at once and carried out side by side, and their answers."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._sent = [(worker, timeout_s, worker.send(*command)) for worker, timeout_s, command in requests]
        self._answers: List[Tuple[WorkerProcess, Any]] = []
        self._waited = [0.0]

    def answers(self) -> List[Tuple[WorkerProcess, Any]]:
        """
        Wait for the answers. A ``WorkerLost`` or ``EnvFailed`` comes in place of an answer. A call that was interrupted
        may be repeated.
        """
        for worker, timeout_s, number in self._sent[len(self._answers) :]:
            self._answers.append((worker, worker.receive(number, timeout_s, self._waited)))
        return self._answers


class WorkerPool(object):
    """
    Workers with a group of neighbouring environments each. A pool that is dropped without ``close`` ends them, too.
    """

    def __init__(self, options: EnvManagerOptions, env_num: int) -> None:
        self._options = options
        self.context = multiprocessing.get_context(options.context)
        worker_num = min(options.worker_num or len(os.sched_getaffinity(0)), env_num)
        self.groups = [list(map(int, env_ids)) for env_ids in np.array_split(range(env_num), worker_num)]
        self._env_fns: Sequence[Callable] = ()
        self.workers: List[WorkerProcess] = []
        weakref.finalize(self, _end, self.workers)

    def start(self, env_fns: Sequence[Callable], shared: SharedSteps) -> None:
        """
        Start all workers and wait until they have made their environments, side by side. Results go to ``shared``.
        Where one fails, which raises, those that were started run until ``close``.
        """
        self._env_fns, self._shared = env_fns, shared
        for env_ids in self.groups:  # one by one: close has to find those that were started before an error
            self.workers.append(self._start(env_ids))
        self.ask(self.workers, 'open')

    def replace(self, index: int) -> None:
        """Start a worker in the place of a lost one, given by its index in ``workers``."""
        self.workers[index] = self._start(self.groups[index])
        self.ask([self.workers[index]], 'open')

    def _start(self, env_ids: List[int]) -> WorkerProcess:
        env_fns = {env_id: self._env_fns[env_id] for env_id in env_ids}
        return WorkerProcess(self.context, env_fns, self._shared, self._options)

    def ask(self, workers: Iterable[WorkerProcess], command: str, *args: Any, skips_lost: bool = False) -> List[Any]:
        """Give some workers a command; their results. Raises ``EnvFailed``, and ``WorkerLost`` unless skipped."""
        timeout_s = self._options.connect_timeout
        results = [result for _, result in Exchange((one, timeout_s, (command, *args)) for one in workers).answers()]
        for result in results:
            if isinstance(result, EnvFailed) or (isinstance(result, WorkerLost) and not skips_lost):
                raise result
        return [result for result in results if not isinstance(result, WorkerLost)]

    def close(self) -> None:
        """End all workers within a bounded time; ``start`` may follow."""
        _end(self.workers)


def _end(workers: List[WorkerProcess]) -> None:
    """End workers and forget them; a fork of the process that started them only forgets them."""
    ours = [worker for worker in workers if worker.owner_pid == os.getpid()]
    for worker in ours:  # closing the pipe may not reach it: processes forked since have copies of our end
        worker.send('end')
    deadline = time.monotonic() + CLOSE_TIMEOUT_S
    for worker in ours:
        worker.end(deadline)
    workers.clear()
