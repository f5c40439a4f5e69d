"""The worker processes of an env manager, seen from the manager: start, ask, notice a loss, replace and end them."""

import contextlib
import logging
import multiprocessing
import os
import pickle
import select
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import wait
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import psutil
from ding.utils import CloudPickleWrapper

from ..compat import multiprocessing_forks  # noqa: F401  # before a worker is started
from ..utils.busy_cores import waits_more_than_it_runs
from .errors import EnvFailed, WorkerEnded, WorkerLost
from .idle_timer import SLICE_S, IdleTimer, Progress
from .inline_worker import InlineWorker
from .options import EnvManagerOptions, TimeLimit
from .shared_buffers import SharedSteps
from .worker_main import run_group

logger = logging.getLogger(__name__)


class WorkerProcess:
    """A worker process, which carries out its commands in their order. Their replies may be waited for in any order."""

    def __init__(
        self, context: Any, env_fns: dict[int, Callable], shared: SharedSteps, options: EnvManagerOptions
    ) -> None:
        """Start the process; the first command must be ``open``. The others are ``EnvGroup``'s arguments."""
        self.env_ids = list(env_fns)
        self._shared = shared
        self._close_timeout_s = options.close_timeout
        self.owner_pid = os.getpid()
        self.lost = False  # whether it was ended for good
        self._connection, theirs = context.Pipe()
        self._number = 0
        # Results and errors by number, of replies that came before the one that was waited for.
        self._replies: dict[int, tuple[Any, EnvFailed | None]] = {}
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
                    shared,
                    options,
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
        """Give it a command: the name of a method of ``EnvGroup``, and arguments. Returns the number that its reply
        will have; ``receive`` says if the process has ended.
        """
        self._number += 1
        message = pickle.dumps((self._number, command, args), pickle.HIGHEST_PROTOCOL)
        with contextlib.suppress(OSError):  # an end of the pipe is closed
            self._connection.send_bytes(message)
        return self._number

    def receive(self, number: int, timer: IdleTimer, count: Callable[[float], None]) -> Any:
        """Wait for the result of a command until the timer is up. ``count`` takes each time of waiting, for the timers
        of all workers that were asked together. Raises ``EnvFailed`` if an environment raised, ``WorkerLost`` if there
        is no reply in time, ``WorkerEnded`` if the process has ended.
        """
        while number not in self._replies and not self.lost:
            slice_s = timer.slice_s
            ready = self._poller.poll(1000 * slice_s)
            if not ready:
                count(slice_s)
                if timer.is_up:
                    raise WorkerLost(f'worker process {self.pid} {timer}')
                continue
            if self._connection.fileno() not in map(itemgetter(0), ready):
                break
            try:
                replied, result, error = pickle.loads(self._connection.recv_bytes())  # noqa: S301  # from a process that this one started
            except (EOFError, OSError):  # it ended before or while it replied
                break
            self._replies[replied] = result, error
        if number not in self._replies:
            raise WorkerEnded(self._how_it_ended())
        result, error = self._replies.pop(number)
        if error is not None:
            raise error
        return result

    def progress(self) -> Progress:
        """What the process has done so far; once it has ended, nothing more."""
        calls = self._shared.call_count(self.env_ids)
        try:
            process = psutil.Process(self.pid)
            cpu, status = process.cpu_times(), process.status()
        except psutil.Error:
            return Progress(calls, 0.0, False)
        return Progress(calls, cpu.user + cpu.system, status == psutil.STATUS_RUNNING)

    def _how_it_ended(self) -> str:
        if self.lost:
            return f'the worker process of environments {self.env_ids} has ended; reset them to start another'
        self._process.join(SLICE_S)
        code = self._process.exitcode
        how = f'signal {-code}' if code is not None and code < 0 else f'exit code {code}'
        return f'worker process {self.pid} has ended ({how})'

    def end(self, asked_at: float | None = None) -> None:
        """Kill the process if it does not end in time, and release what belonged to it. ``close_timeout`` begins when
        it was asked to end (by ``time.monotonic``), and again when it has closed an environment; None: kill it at once.
        """
        if self.lost:
            return
        self.lost = True
        deadline = 0.0 if asked_at is None else asked_at + self._close_timeout_s
        self._replies.clear()  # steps of environments that are gone
        sources = self._connection, self._process.sentinel
        with contextlib.suppress(EOFError, OSError):
            while (left_s := deadline - time.monotonic()) > 0 and self._connection in wait(sources, left_s):
                self._connection.recv_bytes()  # it has closed another one
                deadline = time.monotonic() + self._close_timeout_s
        self._connection.close()
        self._process.join(max(deadline - time.monotonic(), 0.0))
        if self._process.is_alive():
            if asked_at is not None:
                logger.warning(
                    'worker process %d closed no environment for %g s: killed', self.pid, self._close_timeout_s
                )
            self._process.kill()  # a stopped process does not see a SIGTERM
            self._process.join()
        self._process.close()


Worker = WorkerProcess | InlineWorker


class Reply(NamedTuple):
    """A worker's result, or why there is none."""

    worker: Worker
    result: Any
    error: WorkerLost | EnvFailed | None


class PendingReplies:
    """Commands that several workers carry out side by side, whose replies are waited for."""

    def __init__(self) -> None:
        self._sent: list[tuple[Worker, int, IdleTimer]] = []
        self._replies: list[Reply] = []

    def ask(self, worker: Worker, limit: TimeLimit, command: str, *args: Any) -> None:
        """Send a command to a worker, which has this time to reply."""
        self._sent.append((worker, worker.send(command, *args), IdleTimer(worker.progress, limit)))

    def wait(self) -> list[Reply]:
        """Wait for all replies. A call that was interrupted may be repeated."""
        for worker, number, timer in self._sent[len(self._replies) :]:
            try:
                reply = Reply(worker, worker.receive(number, timer, self._count), None)
            except (WorkerLost, EnvFailed) as error:
                reply = Reply(worker, None, error.with_traceback(None))
            self._replies.append(reply)
        return self._replies

    def _count(self, waited_s: float) -> None:
        for _, _, timer in self._sent[len(self._replies) :]:
            timer.count(waited_s)


class WorkerPool:
    """Workers with a group of neighbouring environments each. Dropping a pool without ``close`` ends them, too."""

    def __init__(self, options: EnvManagerOptions, env_num: int) -> None:
        self._options = options
        self.context = multiprocessing.get_context('fork' if options.context == 'inline' else options.context)
        worker_num = min(options.worker_num or len(os.sched_getaffinity(0)), env_num)
        self.groups = [list(map(int, env_ids)) for env_ids in np.array_split(range(env_num), worker_num)]
        self._env_fns: Sequence[Callable] = ()
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

    def ask(self, workers: Iterable[Worker], command: str, *args: Any, skips_lost: bool = False) -> list[Any]:
        """Give some workers a command; their results. Raises ``EnvFailed``, and ``WorkerLost`` unless skipped."""
        pending, limit = PendingReplies(), self._options.time_limit('connect_timeout')
        for worker in workers:
            pending.ask(worker, limit, command, *args)
        replies = pending.wait()
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
